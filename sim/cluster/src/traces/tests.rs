//! What holds of all readers.

use std::fs;

use proptest::prelude::*;

use super::*;

type Reader = fn(&[u8]) -> Result<usize, TraceError>;

/// Every reader of a table, with a first line that it accepts; that of JSON with its start.
fn readers() -> Vec<(String, Reader)> {
    let pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli";
    let jobs = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval";
    let allocated = openb::ASKED_PCT
        .map(|pct| format!(",allocated_pct_at_{pct}"))
        .concat();
    let minutes: String = (1..=azure::DAY_MINUTES)
        .map(|minute| format!(",{minute}"))
        .collect();
    let readers: [(&str, &str, Reader); 16] = [
        ("sn,cpu_milli,memory_mib,gpu,model", "", |bytes| {
            count(openb::nodes("f", bytes))
        }),
        (pods, "", |bytes| count(openb::pods("f", bytes))),
        (
            pods,
            ",gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time",
            |bytes| count(openb::pods("f", bytes)),
        ),
        (
            "workload,policy,tune,seed,total_gpus",
            &allocated,
            |bytes| count(openb::allocations("f", bytes)),
        ),
        ("machine,gpu_type,cap_cpu,cap_mem,cap_gpu", "", |bytes| {
            count(pai::machines("f", bytes))
        }),
        (
            "job_name,inst_id,user,status,start_time,end_time",
            "",
            |bytes| count(pai::jobs("f", bytes)),
        ),
        ("j,t,1,Failed,1,1,1,1,1,T4", "", |bytes| {
            count(pai::tasks("f", bytes))
        }),
        (
            "timestamp,duration,num_gpus,gpu_time,cluster",
            "",
            |bytes| count(philly::jobs("f", bytes)),
        ),
        (JSON, "", |bytes| count(gavel::throughputs("f", bytes))),
        ("A\tc\t-n\t1\t5\t0\t1", "", |bytes| {
            count(gavel::jobs("f", bytes))
        }),
        ("A\tc\t-n\t1\t5\t1\t1\t-1\t0", "", |bytes| {
            count(gavel::jobs("f", bytes))
        }),
        ("A\tc\td\t-n\t1\t5\t1\t1\t-1\t0", "", |bytes| {
            count(gavel::jobs("f", bytes))
        }),
        (jobs, MORE_OF_MURI, |bytes| count(muri::jobs("f", bytes))),
        (jobs, "", |bytes| count(tiresias::jobs("f", bytes))),
        (
            "HashOwner,HashApp,HashFunction,Trigger",
            &minutes,
            |bytes| count(azure::functions("f", bytes)),
        ),
        ("TIMESTAMP,ContextTokens,GeneratedTokens", "", |bytes| {
            count(azure::requests("f", bytes))
        }),
    ];
    readers
        .map(|(header, more, reader)| (format!("{header}{more}"), reader))
        .into()
}

const JSON: &str = "{\"v100\": {\"('A', 1)\": {\"null\": 1,";

const MORE_OF_MURI: &str =
    ",batch_size,iteration_time,resource_time_0,resource_time_1,resource_time_2,priority";

fn count<T>(rows: Result<Vec<T>, TraceError>) -> Result<usize, TraceError> {
    rows.map(|rows| rows.len())
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        for (_, reader) in readers() {
            check(reader(&bytes))?;
        }
    }

    #[test]
    fn any_rows_after_a_header_are_read_or_refused(
        rows in "([0-9a-zé.,\t'\"():{} |-]{0,40}(\r)?\n){0,4}",
        dates in "(2017-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2},[0-9]{1,3},[0-9],1,a\n){0,4}",
        end: Vec<u8>,
    ) {
        for (header, reader) in readers() {
            for rows in [&rows, &dates] {
                let bytes = [header.as_bytes(), b"\n", rows.as_bytes(), &end].concat();
                check(reader(&bytes))?;
            }
        }
    }

    #[test]
    fn any_whole_numbers_make_rows_of_jobs(cells in prop::collection::vec(0..1000_u32, 1..20)) {
        let row = |cell| format!("{cell},1,0,{cell},a,1,1\r\n");
        let rows: String = cells.iter().map(row).collect();
        let header = "\u{feff}job_id,num_gpu,submit_time,iterations,model_name,duration,interval";
        let read = tiresias::jobs("f", format!("{header}\r\n{rows}").as_bytes());
        let ids: Vec<u64> = read.expect("jobs").iter().map(|job| job.id).collect();
        prop_assert!(ids.into_iter().eq(cells.into_iter().map(u64::from)));
    }
}

fn check(read: Result<usize, TraceError>) -> Result<(), TestCaseError> {
    if let Err(error) = read {
        let message = error.to_string();
        prop_assert!(
            message.starts_with("f:") && !message.contains('\n'),
            "{message:?}"
        );
    }
    Ok(())
}

#[test]
fn every_first_line_above_is_that_of_its_reader() {
    for (header, reader) in readers().iter().filter(|(header, _)| header != JSON) {
        let is_row = ["j,", "A\t"].iter().any(|first| header.starts_with(first));
        let read = reader(header.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read, usize::from(is_row), "{header}");
        let marked = format!("\u{feff}{header}\r\n");
        assert_eq!(
            reader(marked.as_bytes()).expect("the same"),
            read,
            "{header}"
        );
    }
}

#[test]
fn every_reader_refuses_the_header_of_another_form_in_a_sentence() {
    let forms = readers();
    let headers = forms
        .iter()
        .filter(|(header, _)| !header.contains(['{', '\t']));
    for (header, _) in headers.filter(|(header, _)| !header.starts_with("j,")) {
        for (known, reader) in &forms {
            if known == header || known.starts_with("name,") && header.starts_with("name,") {
                continue;
            }
            let read = reader(format!("{header}\n").as_bytes());
            let error = read.expect_err("a refusal").to_string();
            let is_json = known == JSON && error.contains("expected the throughputs of Gavel");
            let is_header =
                error.starts_with("f:1: the header \"") && error.contains(": expected ");
            let is_width = error.starts_with("f:1: the row has 1444 columns: expected ");
            assert!(is_json || is_header || is_width, "{known}: {error}");
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = read("no/such.csv".as_ref(), openb::nodes)
        .expect_err("a refusal")
        .to_string();
    assert!(error.starts_with("no/such.csv: No such file"), "{error}");
}

#[test]
fn a_file_is_read_from_its_path() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let read = read(&manifest, |file, bytes| {
        assert!(file.ends_with("Cargo.toml"));
        Ok(bytes.to_vec())
    });
    assert_eq!(read.expect("bytes"), fs::read(&manifest).expect("bytes"));
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let bytes = fs::read(&manifest).expect("bytes").len() as u64;
    let read = |bytes_max| read_up_to(bytes_max, &manifest, |_, _| Ok(()));
    assert!(read(bytes).is_ok());
    let error = read(bytes - 1).expect_err("a refusal").to_string();
    let end = format!(
        "Cargo.toml: the file is too large: expected at most {} bytes",
        bytes - 1
    );
    assert!(error.ends_with(&end), "{error}");
}
