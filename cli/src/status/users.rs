//! What `pillion status --all` shows of GPU time: of each job a column, of each user a line.

use comfy_table::Table;
use serde_json::Value;

use super::hold::time;

/// The name of the column.
pub(super) const GPU_TIME: &str = "GPU TIME";

/// GPU time of a job or a user, for people; an older daemon does not report it.
pub(super) fn gpu_time(of: &Value) -> String {
    of["gpu_time_ns"].as_u64().map_or("N/A".into(), time)
}

/// A line per user; none where the daemon has seen no job or does not report users.
pub(super) fn table(status: &Value) -> Option<Table> {
    let users = status["users"].as_array().filter(|all| !all.is_empty())?;
    let mut table = super::table(&["USER", "JOBS", GPU_TIME]);
    for user in users {
        let uid = user["uid"].as_u64();
        table.add_row([
            uid.map_or("further users".into(), |uid| uid.to_string()),
            user["jobs"].to_string(),
            gpu_time(user),
        ]);
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::jobs_table;
    use super::*;

    /// Its lines, without what is between columns.
    fn lines(table: &Table) -> Vec<Vec<String>> {
        let text = table.to_string();
        let words = |line: &str| {
            let words = line.split("  ").map(str::trim);
            words
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect()
        };
        text.lines().map(words).collect()
    }

    #[test]
    fn each_user_has_a_line_and_those_beyond_the_bound_have_one_together() {
        let status = json!({"users": [
            {"uid": 1000, "gpu_time_ns": 12_340_000_000_u64, "jobs": 3},
            {"uid": 1001, "gpu_time_ns": 1_500_000, "jobs": 12},
            {"uid": null, "gpu_time_ns": 0, "jobs": 1},
        ]});
        let table = table(&status).unwrap();
        let expected = [
            ["USER", "JOBS", "GPU TIME"],
            ["1000", "3", "12 s"],
            ["1001", "12", "1.5 ms"],
            ["further users", "1", "0 us"],
        ];
        assert_eq!(lines(&table), expected);
        let text = table.to_string();
        let ends: Vec<usize> = text.lines().map(|line| line.trim_end().len()).collect();
        assert!(
            ends.iter().all(|end| *end == ends[0]),
            "to the right: {text}"
        );
        for none in [json!({"users": []}), json!({})] {
            assert!(super::table(&none).is_none());
        }
    }

    #[test]
    fn jobs_have_their_gpu_time_only_where_all_is_asked_for() {
        let ended = json!({"job": "train", "class": "best-effort", "gpu_time_ns": 2_500_000,
            "totals": {"launches": 7, "launches_held": 0}, "enforcing": "nothing: it has ended"});
        let older = json!({"job": "old", "class": "best-effort", "enforcing": "nothing"});
        let status = json!({"jobs": [ended, older]});
        let all = lines(&jobs_table(&status, true));
        let place = all[0].iter().position(|name| name == GPU_TIME).unwrap();
        assert_eq!((&*all[1][place], &*all[2][place]), ("2.5 ms", "N/A"));
        assert_eq!((&*all[0][place - 1], &*all[1][place - 1]), ("HELD", "0"));
        let usual = lines(&jobs_table(&status, false));
        assert!(!usual[0].contains(&GPU_TIME.to_owned()) && usual[1].len() + 1 == all[1].len());
    }
}
