//! Stream capture.

use std::ffi::c_uint;

use abi::types::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode,
    CUstreamCaptureStatus,
};

use super::graph::{edge_data, graph, graph_handle, nodes_of};
use super::{exports, flavoured};
use crate::captures::Info;
use crate::driver::Driver;
use crate::raw::{In, Out};
use crate::streams::Flavour;
use crate::thread;

/// `CU_STREAM_ADD_CAPTURE_DEPENDENCIES` and `CU_STREAM_SET_CAPTURE_DEPENDENCIES`.
const ADD: c_uint = 0;
const SET: c_uint = 1;

fn begin(
    driver: &Driver,
    flavour: Flavour,
    stream: CUstream,
    mode: CUstreamCaptureMode,
) -> Result<(), CUresult> {
    let stream = driver.stream(stream, flavour)?;
    driver.begin_capture(&stream, mode, None)
}

fn end(
    driver: &'static Driver,
    flavour: Flavour,
    stream: CUstream,
    to: &Out<CUgraph>,
) -> Result<(), CUresult> {
    if to.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let stream = driver.stream(stream, flavour)?;
    let ended = driver.end_capture(&stream);
    to.set(ended.map_or(CUgraph::NULL, graph_handle))?;
    ended.map(drop)
}

struct Answers {
    status: Out<CUstreamCaptureStatus>,
    id: Out<u64>,
    graph: Out<CUgraph>,
    nodes: Out<*const CUgraphNode>,
    edge_data: Out<*const CUgraphEdgeData>,
    count: Out<usize>,
}

fn answer(
    driver: &Driver,
    flavour: Flavour,
    stream: CUstream,
    answers: &Answers,
) -> Result<(), CUresult> {
    if answers.status.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let stream = driver.stream(stream, flavour)?;
    let Info {
        status,
        id,
        graph,
        after,
        edge_data,
        count,
    } = driver.capture_info(&stream)?;
    answers.status.set(status)?;
    if status != CUstreamCaptureStatus::ACTIVE {
        return Ok(());
    }
    answers.id.set_if_wanted(id);
    answers.graph.set_if_wanted(graph_handle(graph));
    answers
        .nodes
        .set_if_wanted(std::ptr::with_exposed_provenance(after));
    answers
        .edge_data
        .set_if_wanted(std::ptr::with_exposed_provenance(edge_data));
    answers.count.set_if_wanted(count);
    Ok(())
}

fn update(
    driver: &Driver,
    flavour: Flavour,
    stream: CUstream,
    nodes: Vec<u64>,
    flags: c_uint,
) -> Result<(), CUresult> {
    let stream = driver.stream(stream, flavour)?;
    match flags {
        ADD | SET => driver.update_capture(&stream, &nodes, flags == SET),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

exports! {
    cuThreadExchangeStreamCaptureMode(mode: Out<CUstreamCaptureMode>) |_| {
        let asked = mode.get()?;
        if asked.name().is_none() {
            return Err(CUresult::INVALID_VALUE);
        }
        mode.set(thread::exchange_capture_mode(asked))
    };
}

flavoured! {
    cuStreamBeginCapture cuStreamBeginCapture_ptsz (stream: CUstream)
        |driver, flavour| begin(driver, flavour, stream, CUstreamCaptureMode::GLOBAL);

    cuStreamBeginCapture_v2 cuStreamBeginCapture_v2_ptsz (stream: CUstream, mode: CUstreamCaptureMode)
        |driver, flavour| begin(driver, flavour, stream, mode);

    cuStreamBeginCaptureToGraph cuStreamBeginCaptureToGraph_ptsz (
        stream: CUstream, to: CUgraph, nodes: In<CUgraphNode>, data: In<CUgraphEdgeData>, count: usize,
        mode: CUstreamCaptureMode
    ) |driver, flavour| {
        edge_data(&data, count)?;
        let stream = driver.stream(stream, flavour)?;
        driver.begin_capture(&stream, mode, Some((graph(to), nodes_of(&nodes, count)?)))
    };

    cuStreamEndCapture cuStreamEndCapture_ptsz (stream: CUstream, to: Out<CUgraph>)
        |driver, flavour| end(driver, flavour, stream, &to);

    cuStreamIsCapturing cuStreamIsCapturing_ptsz (stream: CUstream, status: Out<CUstreamCaptureStatus>)
        |driver, flavour| {
            if status.is_null() {
                return Err(CUresult::INVALID_VALUE);
            }
            let stream = driver.stream(stream, flavour)?;
            status.set(driver.capture_info(&stream)?.status)
        };

    cuStreamGetCaptureInfo cuStreamGetCaptureInfo_ptsz (
        stream: CUstream, status: Out<CUstreamCaptureStatus>, id: Out<u64>
    ) |driver, flavour| answer(driver, flavour, stream, &Answers {
        status,
        id,
        graph: Out::at(std::ptr::null_mut()),
        nodes: Out::at(std::ptr::null_mut()),
        edge_data: Out::at(std::ptr::null_mut()),
        count: Out::at(std::ptr::null_mut()),
    });

    cuStreamGetCaptureInfo_v2 cuStreamGetCaptureInfo_v2_ptsz (
        stream: CUstream, status: Out<CUstreamCaptureStatus>, id: Out<u64>, graph: Out<CUgraph>,
        nodes: Out<*const CUgraphNode>, count: Out<usize>
    ) |driver, flavour| answer(driver, flavour, stream, &Answers {
        status,
        id,
        graph,
        nodes,
        edge_data: Out::at(std::ptr::null_mut()),
        count,
    });

    cuStreamGetCaptureInfo_v3 cuStreamGetCaptureInfo_v3_ptsz (
        stream: CUstream, status: Out<CUstreamCaptureStatus>, id: Out<u64>, graph: Out<CUgraph>,
        nodes: Out<*const CUgraphNode>, edge_data: Out<*const CUgraphEdgeData>, count: Out<usize>
    ) |driver, flavour| answer(driver, flavour, stream, &Answers {
        status,
        id,
        graph,
        nodes,
        edge_data,
        count,
    });

    cuStreamUpdateCaptureDependencies cuStreamUpdateCaptureDependencies_ptsz (
        stream: CUstream, nodes: In<CUgraphNode>, count: usize, flags: c_uint
    ) |driver, flavour| update(driver, flavour, stream, nodes_of(&nodes, count)?, flags);

    cuStreamUpdateCaptureDependencies_v2 cuStreamUpdateCaptureDependencies_v2_ptsz (
        stream: CUstream, nodes: In<CUgraphNode>, data: In<CUgraphEdgeData>, count: usize, flags: c_uint
    ) |driver, flavour| {
        edge_data(&data, count)?;
        update(driver, flavour, stream, nodes_of(&nodes, count)?, flags)
    };
}
