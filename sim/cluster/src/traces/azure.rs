//! Arrivals that Microsoft recorded in Azure: invocations of functions in 2019, and requests to
//! language models in 2023. Origin: github.com/Azure/AzurePublicDataset; the sample of functions is
//! from github.com/vhive-serverless/invitro. Licence: CC-BY-4.0, the sample's repository MIT.
//! Functions: `HashOwner,HashApp,HashFunction,Trigger,1,2,…,1440`, how often each function was
//! invoked in each minute of a day. Requests: `TIMESTAMP,ContextTokens,GeneratedTokens`, with the
//! time in UTC and seven digits of a fraction of a second.

use super::TraceError;
use super::calendar::{self, civil_ns, since_first};
use super::table::{Column, Table};

/// A function, and how often it was invoked in a day.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its owner, a hash.
    pub owner: String,
    /// The application that it is part of, a hash.
    pub app: String,
    /// Its name, a hash.
    pub name: String,
    /// The kind of event that invokes it: `http`, `timer`, `queue` and others.
    pub trigger: String,
    /// Invocations in each minute of the day: [`DAY_MINUTES`] of them.
    pub per_minute: Vec<u32>,
}

/// A request to a language model.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// When it arrived, since the first of the file.
    pub arrival_s: f64,
    /// Tokens of the prompt.
    pub context_tokens: u32,
    /// Tokens of the answer.
    pub generated_tokens: u32,
}

/// Minutes of a day.
pub const DAY_MINUTES: usize = 1440;

/// Reads the invocations of functions.
pub fn functions(file: &str, bytes: &[u8]) -> Result<Vec<Function>, TraceError> {
    let known = "invocations of Azure functions (HashOwner,HashApp,HashFunction,Trigger,1,…,1440)";
    let mut table = Table::commas(file, bytes, known)?;
    let [owner, app, name, trigger] =
        table.by_name(["HashOwner", "HashApp", "HashFunction", "Trigger"])?;
    let column = |minute: usize| table.column(minute.to_string().into());
    let minutes = (1..=DAY_MINUTES)
        .map(column)
        .collect::<Result<Vec<Column>, TraceError>>()?;
    table.rows(|row| {
        let counts = minutes.iter().map(|column| row.whole(column, 0..=u32::MAX));
        Ok(Function {
            owner: row.text(&owner)?,
            app: row.text(&app)?,
            name: row.text(&name)?,
            trigger: row.text(&trigger)?,
            per_minute: counts.collect::<Result<_, _>>()?,
        })
    })
}

/// Reads requests to language models, in the order of arrival.
pub fn requests(file: &str, bytes: &[u8]) -> Result<Vec<Request>, TraceError> {
    let known = "requests to Azure's language models (TIMESTAMP,ContextTokens,GeneratedTokens)";
    let mut table = Table::commas(file, bytes, known)?;
    let [timestamp, context, generated] =
        table.by_name(["TIMESTAMP", "ContextTokens", "GeneratedTokens"])?;
    let requests = table.rows(|row| {
        let arrival_ns = civil_ns(row.cell(&timestamp));
        let arrival_ns = arrival_ns.ok_or_else(|| row.refuse(&timestamp, calendar::FORM))?;
        let request = Request {
            arrival_s: 0.0,
            context_tokens: row.whole(&context, 0..=TOKENS_MAX)?,
            generated_tokens: row.whole(&generated, 0..=TOKENS_MAX)?,
        };
        Ok((arrival_ns, request))
    })?;
    Ok(since_first(requests, |request, arrival_s| {
        request.arrival_s = arrival_s
    }))
}

/// The trace has at most 14 050 in a request.
const TOKENS_MAX: u32 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> String {
        let minutes: String = (1..=DAY_MINUTES)
            .map(|minute| format!(",{minute}"))
            .collect();
        format!("HashOwner,HashApp,HashFunction,Trigger{minutes}")
    }

    #[test]
    fn invocations_are_read_in_the_order_of_minutes() {
        let counts: String = (0..DAY_MINUTES)
            .map(|minute| format!(",{minute}"))
            .collect();
        let text = format!("{}\no,a,f,http{counts}\n", header());
        let read = functions("f.csv", text.as_bytes()).expect("functions");
        assert_eq!((&*read[0].owner, &*read[0].app), ("o", "a"));
        assert_eq!((&*read[0].name, &*read[0].trigger), ("f", "http"));
        assert!(read[0].per_minute.iter().copied().eq(0..1440));
    }

    #[test]
    fn a_day_without_a_minute_or_with_a_wrong_count_is_refused() {
        let text = header().replace(",1440", "");
        let error = functions("f.csv", text.as_bytes())
            .expect_err("a refusal")
            .to_string();
        assert!(
            error.contains("has no column 1440: expected invocations of Azure"),
            "{error}"
        );
        let text = format!(
            "{}\no,a,f,http{},-1\n",
            header(),
            ",0".repeat(DAY_MINUTES - 1)
        );
        let error = functions("f.csv", text.as_bytes())
            .expect_err("a refusal")
            .to_string();
        let expected = "f.csv:2: 1440 is \"-1\": expected a whole number from 0 to 4294967295";
        assert_eq!(error, expected);
    }

    #[test]
    fn requests_are_read_in_the_order_of_arrival() {
        let text = b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n\
                     2023-11-17 00:00:00.5000001,4808,10\r\n2023-11-16 23:59:59.0000000,7,8\r\n";
        let read = requests("r.csv", text).expect("requests");
        let request = |arrival_s, context_tokens, generated_tokens| Request {
            arrival_s,
            context_tokens,
            generated_tokens,
        };
        assert_eq!(read, [request(0.0, 7, 8), request(1.500_000_1, 4808, 10)]);
    }

    #[test]
    fn a_cell_of_a_request_out_of_range_is_refused() {
        let refused = |row: &str| {
            let text = format!("TIMESTAMP,ContextTokens,GeneratedTokens\n{row}\n");
            requests("r.csv", text.as_bytes())
                .expect_err("a refusal")
                .to_string()
        };
        assert_eq!(
            refused("2023-11-16T23:59:59,7,8"),
            "r.csv:2: TIMESTAMP is \"2023-11-16T23:59:59\": expected YYYY-MM-DD HH:MM:SS, or with \
             a fraction, from 1970 to 2199"
        );
        assert_eq!(
            refused("2023-11-16 23:59:59,7,"),
            "r.csv:2: GeneratedTokens is \"\": expected a whole number from 0 to 100000000"
        );
    }
}
