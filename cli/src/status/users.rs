//! GPU time in `pillion status --all`: a column of jobs, and a line per user.

use serde_json::Value;

use super::grid::{Column, Give, lines};
use super::hold::time;

pub(super) const GPU_TIME: &str = "GPU TIME";

const COLUMNS: [Column; 4] = [
    Column::words("GPU", 4, Give::Middle(8)),
    Column::words("USER", 1, Give::End(8)),
    Column::numbers("JOBS", 3),
    Column::numbers(GPU_TIME, 2),
];

/// GPU time of a job or a user, for people; an older daemon does not report it.
pub(super) fn gpu_time(of: &Value) -> String {
    of["gpu_time_ns"].as_u64().map_or("N/A".into(), time)
}

/// A line per user of each GPU, with the GPU's name if there are several; none without any user.
pub(super) fn table(gpus: &[(String, &Value)], columns_max: usize) -> Vec<String> {
    let rows = gpus.iter().flat_map(|(gpu, status)| {
        let users = status["users"].as_array().into_iter().flatten();
        users.map(move |user| {
            let uid = user["uid"].as_u64();
            vec![
                gpu.clone(),
                uid.map_or("further users".into(), |uid| uid.to_string()),
                user["jobs"].to_string(),
                gpu_time(user),
            ]
        })
    });
    let rows: Vec<Vec<String>> = rows.collect();
    match rows.is_empty() {
        true => Vec::new(),
        false => lines(&COLUMNS, &rows, columns_max),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_user_has_a_line_and_those_beyond_the_bound_have_one_together() {
        let status = json!({"users": [
            {"uid": 1000, "gpu_time_ns": 12_340_000_000_u64, "jobs": 3},
            {"uid": 1001, "gpu_time_ns": 1_500_000, "jobs": 12},
            {"uid": null, "gpu_time_ns": 0, "jobs": 1},
        ]});
        let expected = [
            "USER           JOBS  GPU TIME",
            "1000              3      12 s",
            "1001             12    1.5 ms",
            "further users     1      0 us",
        ];
        let of = |gpu: &str, status| (gpu.to_owned(), status);
        assert_eq!(table(&[of("", &status)], 80), expected);
        let several = table(&[of("GPU-1", &status), of("GPU-2", &status)], 80);
        assert_eq!(several.len(), 7);
        assert!(several[6].starts_with("GPU-2  further users"));
        for none in [json!({"users": []}), json!({})] {
            assert!(table(&[(String::new(), &none)], 80).is_empty());
        }
    }

    #[test]
    fn an_older_daemon_does_not_report_gpu_time() {
        assert_eq!(gpu_time(&json!({"gpu_time_ns": 2_500_000})), "2.5 ms");
        assert_eq!(gpu_time(&json!({})), "N/A");
    }
}
