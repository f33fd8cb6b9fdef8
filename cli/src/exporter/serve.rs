//! The exporter's HTTP server: one request per connection, and a limit on everything. `httparse`
//! parses the head; the rest is small, since there are two pages and no bodies to read
//! (`docs/decisions/066-one-list-of-families-two-formats.md`). At most [`CONNECTIONS_MAX`] peers
//! are served at a time; each has [`HEAD_PATIENCE_NS`] for its request and [`PATIENCE_NS`] for the
//! answer.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use protocol::clock::Clock;

use super::encode::Format;

/// Peers served at a time; the next one gets a 503.
const CONNECTIONS_MAX: usize = 16;
/// Peers that are refused with a 503 at a time; further ones may see a reset.
const REFUSED_MAX: usize = 16;
/// Timeout for a peer's request, ns. Silent peers keep a scrape out no longer.
const HEAD_PATIENCE_NS: u64 = 1_000_000_000;
const PATIENCE_NS: u64 = 5_000_000_000;
/// Limit on a request without its body, bytes.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// Limit on the header lines of a request.
const HEADERS_MAX: usize = 64;
/// Limit on the data that is read and discarded after a request, bytes.
const REST_BYTES_MAX: usize = 64 * 1024;
/// Delay before accepting again after running out of descriptors, ms.
const ACCEPT_AGAIN_MS: u16 = 100;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

#[derive(Debug, PartialEq, Eq)]
struct Request {
    method: String,
    /// Without the query.
    path: String,
    format: Format,
}

const PLAIN: &str = "text/plain; charset=utf-8";
const HOME: &str = "<!DOCTYPE html>\n<html lang=\"en\"><head><title>Pillion</title></head>\n\
                    <body><h1>pillion exporter</h1><p><a href=\"/metrics\">Metrics</a></p></body></html>\n";

/// Serves pages until SIGTERM or SIGINT. Call it before other threads start: they would not block
/// these signals, and would receive them.
pub(super) fn serve(
    listener: &TcpListener,
    page: impl Fn(Format) -> String + Send + Sync + 'static,
) -> io::Result<()> {
    let ending = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    ending.thread_block()?;
    let has_come = SignalFd::with_flags(&ending, SfdFlags::SFD_CLOEXEC)?;
    listener.set_nonblocking(true)?;
    let page = Arc::new(page);
    let (served, refused) = (Arc::default(), Arc::default());
    loop {
        let wanted = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut polled = [wanted(has_come.as_fd()), wanted(listener.as_fd())];
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => (),
            Err(error) => return Err(error.into()),
        }
        if polled[0].any() == Some(true) {
            return Ok(());
        }
        match listener.accept() {
            Ok((stream, _)) => match Place::of(&served, CONNECTIONS_MAX) {
                Some(place) => start(stream, Arc::clone(&page), place),
                None => refuse(stream, Place::of(&refused, REFUSED_MAX)),
            },
            Err(error) if is_passing(&error) => (),
            Err(_) => {
                // Out of descriptors or memory: that passes, and must not cause spinning.
                let mut polled = [wanted(has_come.as_fd())];
                let _ = poll(&mut polled, PollTimeout::from(ACCEPT_AGAIN_MS));
            }
        }
    }
}

/// Whether the error affects only this peer (accept(2)), or there was none.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
    )
}

fn start(
    stream: TcpStream,
    page: Arc<impl Fn(Format) -> String + Send + Sync + 'static>,
    place: Place,
) {
    // Without a thread the connection is closed.
    let _ = thread::Builder::new().spawn(move || {
        answer(stream, &*page, HEAD_PATIENCE_NS);
        drop(place);
    });
}

/// Answers that all places are taken; waits for the peer to read that if a place is left for it.
fn refuse(stream: TcpStream, place: Option<Place>) {
    let busy = Response::plain("503 Service Unavailable", "too many connections\n").encode(true);
    let Some(place) = place else {
        // Into the socket's buffer, or not at all.
        let _ = stream.set_nonblocking(true);
        let _ = (&stream).write_all(&busy);
        return;
    };
    let _ = thread::Builder::new().spawn(move || {
        let mut peer = Peer::of(stream);
        peer.give(HEAD_PATIENCE_NS);
        if peer.write_all(&busy).is_ok() {
            peer.finish();
        }
        drop(place);
    });
}

struct Place(Arc<AtomicUsize>);

impl Place {
    fn of(taken: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        // Only the accepting thread takes places.
        if taken.load(Ordering::Relaxed) >= most {
            return None;
        }
        taken.fetch_add(1, Ordering::Relaxed);
        Some(Self(Arc::clone(taken)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads a request and answers it. A peer that is too slow, or gone, is abandoned.
fn answer(stream: TcpStream, page: &impl Fn(Format) -> String, head_patience_ns: u64) {
    let mut peer = Peer::of(stream);
    peer.give(head_patience_ns);
    let (response, has_body) = match peer.request() {
        Ok(Some(request)) => (respond(&request, page), request.method != "HEAD"),
        Ok(None) => return,
        Err(status) => (Response::plain(status, "malformed request\n"), true),
    };
    peer.give(PATIENCE_NS);
    if peer.write_all(&response.encode(has_body)).is_ok() {
        peer.finish();
    }
}

fn respond(request: &Request, page: &impl Fn(Format) -> String) -> Response {
    match (request.method.as_str(), request.path.as_str()) {
        ("GET" | "HEAD", "/metrics") => Response {
            status: "200 OK",
            content_type: request.format.content_type(),
            body: page(request.format),
        },
        ("GET" | "HEAD", "/") => Response {
            status: "200 OK",
            content_type: "text/html; charset=utf-8",
            body: HOME.to_owned(),
        },
        ("GET" | "HEAD", _) => Response::plain("404 Not Found", "the metrics are at /metrics\n"),
        _ => Response::plain(NOT_ALLOWED, "only GET and HEAD are answered\n"),
    }
}

const NOT_ALLOWED: &str = "405 Method Not Allowed";

impl Response {
    fn plain(status: &'static str, text: &str) -> Self {
        Self {
            status,
            content_type: PLAIN,
            body: text.to_owned(),
        }
    }

    fn encode(&self, has_body: bool) -> Vec<u8> {
        let allow = match self.status == NOT_ALLOWED {
            true => "Allow: GET, HEAD\r\n",
            false => "",
        };
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}X-Content-Type-Options: nosniff\r\n\
             Connection: close\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len(),
        );
        let body = has_body.then_some(self.body.as_str());
        [head.as_str(), body.unwrap_or_default()]
            .concat()
            .into_bytes()
    }
}

/// A connection with one deadline for all its reads, or writes, together.
struct Peer {
    stream: TcpStream,
    clock: Clock,
    until_ns: u64,
}

impl Peer {
    fn of(stream: TcpStream) -> Self {
        Self {
            stream,
            clock: Clock::monotonic(),
            until_ns: 0,
        }
    }

    fn give(&mut self, patience_ns: u64) {
        self.until_ns = self.clock.now_ns() + patience_ns;
    }

    fn left(&self) -> io::Result<Duration> {
        match self.until_ns.saturating_sub(self.clock.now_ns()) {
            0 => Err(ErrorKind::TimedOut.into()),
            left_ns => Ok(Duration::from_nanos(left_ns)),
        }
    }

    /// The request; none if the peer has gone or is too slow. Bytes that are no request give the
    /// status line of the answer.
    fn request(&mut self) -> Result<Option<Request>, &'static str> {
        let (mut head, mut chunk) = (Vec::new(), [0; 1024]);
        while head.len() < HEAD_BYTES_MAX {
            match self.read(&mut chunk) {
                Ok(0) | Err(_) => return Ok(None),
                Ok(count) => head.extend(&chunk[..count]),
            }
            if let Some(request) = parse(&head)? {
                return Ok(Some(request));
            }
        }
        Err(TOO_LARGE)
    }

    /// Closes so that the answer arrives: closing a socket with unread data discards it (tcp(7)).
    fn finish(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let (mut rest, mut chunk) = (0, [0; 1024]);
        while let Ok(count @ 1..) = self.read(&mut chunk) {
            rest += count;
            if rest > REST_BYTES_MAX {
                return;
            }
        }
    }
}

const TOO_LARGE: &str = "431 Request Header Fields Too Large";

impl Read for Peer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buffer)
    }
}

impl Write for Peer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Parses a request; none if it is incomplete.
fn parse(head: &[u8]) -> Result<Option<Request>, &'static str> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => (),
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(TOO_LARGE),
        Err(_) => return Err("400 Bad Request"),
    }
    let accepts = request.headers.iter();
    let accepts = accepts.filter(|header| header.name.eq_ignore_ascii_case("accept"));
    let accepts: Vec<_> = accepts
        .map(|header| String::from_utf8_lossy(header.value))
        .collect();
    let target = request.path.unwrap_or_default();
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    Ok(Some(Request {
        method: request.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        format: Format::accepted(&accepts.join(",")),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(parts: &[&str], patience_ns: u64) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let page = |format| format!("page as {format:?}");
        let server = thread::spawn(move || answer(stream, &page, patience_ns));
        for part in parts {
            // A server that answers early need not read everything.
            let _ = client.write_all(part.as_bytes());
        }
        let mut text = Vec::new();
        let _ = client.read_to_end(&mut text);
        drop(client);
        server.join().unwrap();
        String::from_utf8(text).unwrap()
    }

    fn asked(request: &str) -> String {
        answered(&[request], PATIENCE_NS)
    }

    #[test]
    fn the_metrics_come_in_the_format_that_was_asked_for() {
        let text = asked("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4;"));
        assert!(text.contains("\r\nContent-Length: 12\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\npage as Text"), "{text}");
        let accept = "ACCEPT: application/openmetrics-text;version=1.0.0,*/*;q=0.1";
        let parts = ["GET /metrics HT", "TP/1.1\r\n", accept, "\r\n\r\n"];
        let text = answered(&parts, PATIENCE_NS);
        assert!(text.contains("Content-Type: application/openmetrics-text; version=1.0.0;"));
        assert!(text.ends_with("page as OpenMetrics"), "{text}");
    }

    #[test]
    fn other_pages_and_methods_are_refused_and_a_head_has_no_body() {
        let text = asked("HEAD /metrics HTTP/1.0\r\n\r\n");
        assert!(text.contains("Content-Length: 12\r\n") && text.ends_with("\r\n\r\n"));
        let text = asked("GET / HTTP/1.1\r\n\r\n");
        assert!(text.contains("<a href=\"/metrics\">"), "{text}");
        let text = asked("GET /etc HTTP/1.1\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 404 Not Found\r\n"), "{text}");
        let text = asked("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
        assert!(text.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"));
        assert!(text.contains("\r\nAllow: GET, HEAD\r\n"), "{text}");
    }

    #[test]
    fn what_is_no_request_is_called_that() {
        let text = asked("\u{1}\u{2}\u{3} what\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{text}");
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65));
        assert!(asked(&many).starts_with("HTTP/1.1 431 "));
        let long = format!(
            "GET / HTTP/1.1\r\na: {}\r\n\r\n",
            "x".repeat(HEAD_BYTES_MAX)
        );
        assert!(asked(&long).starts_with("HTTP/1.1 431 "));
    }

    #[test]
    fn a_peer_that_does_not_come_to_the_end_of_its_request_is_left() {
        assert_eq!(answered(&["GET / HT"], 1_000_000), "");
    }

    #[test]
    fn there_are_as_many_places_as_there_may_be_and_they_come_back() {
        let served = Arc::default();
        let place = || Place::of(&served, CONNECTIONS_MAX);
        let places: Vec<Place> = (0..CONNECTIONS_MAX).map(|_| place().unwrap()).collect();
        assert!(place().is_none());
        drop(places);
        assert!(place().is_some());
    }

    #[test]
    fn a_peer_that_is_refused_reads_so_and_sees_no_reset_when_it_asks_afterwards() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let refused = Arc::default();
        refuse(stream, Place::of(&refused, REFUSED_MAX));
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
        assert!(text.ends_with("\r\n\r\ntoo many connections\n"), "{text}");
    }
}
