//! Mistakes in the list of entry points fail the build with their line.

#[path = "../build/table.rs"]
mod table;

const HEADER: &str = "symbol,api,version,per_thread,category,route,softgpu,prototype";
const GOOD: &str = "cuMemAlloc_v2,cuMemAlloc,3020,0,memory,hook,1,\"CUdeviceptr *p, size_t n\"";

fn errors(lines: &[&str]) -> Vec<String> {
    let text = [HEADER]
        .iter()
        .chain(lines)
        .fold(String::new(), |text, line| text + line + "\n");
    table::parse("list.csv", &text).err().unwrap_or_default()
}

#[track_caller]
fn assert_refused(line: &str, error: &str) {
    assert_eq!(errors(&[GOOD, line]), [format!("list.csv:3: {error}")]);
}

#[test]
fn a_good_line_is_read_as_it_stands() {
    let rows = table::parse("list.csv", &format!("{HEADER}\n{GOOD}\n")).unwrap();
    let expected = table::Row {
        symbol: "cuMemAlloc_v2".to_owned(),
        api: "cuMemAlloc".to_owned(),
        version: 3020,
        per_thread: false,
        category: "Memory",
        hooked: true,
        softgpu: true,
        prototype: "CUdeviceptr *p, size_t n".to_owned(),
    };
    assert_eq!(rows, [expected]);
}

#[test]
fn rows_are_sorted_by_symbol() {
    let list = format!("{HEADER}\n{GOOD}\ncuInit,cuInit,2000,0,entry,hook,1,unsigned int Flags\n");
    let rows = table::parse("list.csv", &list).unwrap();
    assert_eq!(rows[0].symbol, "cuInit");
    assert_eq!(rows[1].symbol, "cuMemAlloc_v2");
}

#[test]
fn the_build_reads_the_same_list_as_the_library() {
    let rows = table::parse("entry_points.csv", abi::ENTRY_POINTS_CSV).unwrap();
    assert_eq!(rows.len(), abi::ENTRY_POINT_COUNT);
    for (row, entry_point) in rows.iter().zip(&abi::ENTRY_POINTS) {
        assert_eq!(row.symbol.as_bytes(), entry_point.symbol.to_bytes());
        assert_eq!(row.api, entry_point.api);
        assert_eq!(row.version, entry_point.version);
        assert_eq!(row.per_thread, entry_point.per_thread);
        assert_eq!(row.category, format!("{:?}", entry_point.category));
        assert_eq!(row.hooked, entry_point.route == abi::Route::Hook);
        assert_eq!(row.softgpu, entry_point.softgpu);
        assert_eq!(row.prototype, entry_point.prototype);
    }
}

#[test]
fn a_wrong_header_is_refused() {
    let errors = table::parse("list.csv", "symbol,api\n").unwrap_err();
    assert_eq!(
        errors,
        [format!("list.csv:1: the header must read `{HEADER}`")]
    );
}

#[test]
fn every_mistake_is_named_with_its_line() {
    let route = "cuA,cuA,3020,0,memory,hok,1,void";
    let category = "cuB,cuB,3020,0,memroy,hook,1,void";
    assert_eq!(
        errors(&[route, GOOD, category]),
        [
            "list.csv:2: unknown route `hok`",
            "list.csv:4: unknown category `memroy`"
        ]
    );
}

#[test]
fn duplicates_are_refused() {
    assert_refused(GOOD, "`cuMemAlloc_v2` is already in line 2");
    assert_refused(
        "cuMemAlloc_v3,cuMemAlloc,3020,0,memory,hook,1,void",
        "`cuMemAlloc_v3` answers the same request as line 2",
    );
}

#[test]
fn malformed_fields_are_refused() {
    assert_refused("cuA,cuA,3020,0,memory,hook,1", "7 fields instead of 8");
    assert_refused(
        "malloc,cuA,3020,0,memory,hook,1,void",
        "`malloc` is not a driver symbol",
    );
    assert_refused(
        "cuA,cuB,3020,0,memory,hook,1,void",
        "`cuA` is not a form of the api `cuB`",
    );
    assert_refused(
        "cuA,cuA,12.8,0,memory,hook,1,void",
        "`12.8` is not a CUDA version (e.g. 12080)",
    );
    assert_refused(
        "cuA,cuA,0,0,memory,hook,1,void",
        "`0` is not a CUDA version (e.g. 12080)",
    );
    assert_refused(
        "cuA,cuA,3020,x,memory,hook,1,void",
        "per_thread is `x`, not 0 or 1",
    );
    assert_refused(
        "cuA,cuA,3020,0,memory,hook,yes,void",
        "softgpu is `yes`, not 0 or 1",
    );
    assert_refused("cuA,cuA,3020,0,memory,hook,1,", "`cuA` has no prototype");
}

#[test]
fn flavour_and_suffix_must_agree() {
    let error = "per_thread contradicts the suffix of `cuA_ptsz`";
    assert_refused("cuA_ptsz,cuA,7000,0,memory,hook,1,void", error);
    let error = "per_thread contradicts the suffix of `cuA`";
    assert_refused("cuA,cuA,7000,1,memory,hook,1,void", error);
}

#[test]
fn quotes_must_be_balanced() {
    assert_refused(
        "cuA,cuA,3020,0,memory,hook,1,\"void",
        "a quote is not closed",
    );
    assert_refused(
        "cuA,cuA,3020,0,memory,hook,1,vo\"id",
        "a quote inside an unquoted field",
    );
}

#[test]
fn a_doubled_quote_stands_for_one() {
    let list = format!("{HEADER}\ncuA,cuA,3020,0,memory,hook,1,\"a \"\"b\"\", c\"\n");
    assert_eq!(
        table::parse("list.csv", &list).unwrap()[0].prototype,
        "a \"b\", c"
    );
}
