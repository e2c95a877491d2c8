//! One request over `wasi:http`, and its response.

use super::{Request, Response, parts};
use crate::Failure;
use crate::http_bindings::wasi::http::outgoing_handler;
use crate::http_bindings::wasi::http::types::{
    ErrorCode, Fields, IncomingResponse, Method, OutgoingBody, OutgoingRequest, RequestOptions, Scheme,
};
use crate::http_bindings::wasi::io::streams::StreamError;

/// What one write takes at most, as WASI says.
const WRITE_BYTES: usize = 4 << 10;
/// What one read asks for.
const READ_BYTES: u64 = 64 << 10;

/// Sends one request, without following anything.
pub(crate) fn send(request: &Request) -> Result<Response, Failure> {
    let (scheme, authority, path) = parts(&request.url)?;
    let bad = |what: &str| {
        Failure::dead(format_args!("{what} of the request to {} is not one that can be sent", request.url))
    };
    let mut headers: Vec<_> =
        request.headers.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes())).collect();
    if !request.body.is_empty() {
        headers.push(("content-length".to_owned(), request.body.len().to_string().into_bytes()));
    }
    let headers = Fields::from_list(&headers).map_err(|error| {
        Failure::dead(format_args!("a header of the request to {} is refused: {error:?}", request.url))
    })?;
    let outgoing = OutgoingRequest::new(headers);
    outgoing.set_method(&method(&request.method)).map_err(|()| bad("the method"))?;
    outgoing
        .set_scheme(Some(if scheme == "https" { &Scheme::Https } else { &Scheme::Http }))
        .map_err(|()| bad("the scheme"))?;
    outgoing.set_authority(Some(authority)).map_err(|()| bad("the host"))?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    outgoing.set_path_with_query(Some(&path)).map_err(|()| bad("the path"))?;
    let options = request.timeout.map(|timeout| {
        let nanos = Some(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let options = RequestOptions::new();
        // A worker that does not know one keeps to the run's own time.
        let _ = options.set_first_byte_timeout(nanos);
        let _ = options.set_between_bytes_timeout(nanos);
        options
    });
    let body = if request.body.is_empty() { None } else { Some(outgoing.body().map_err(|()| bad("the body"))?) };
    let coming = outgoing_handler::handle(outgoing, options).map_err(|error| failed(request, &error))?;
    if let Some(body) = body {
        // What goes wrong here, the response says better.
        let _ = write(body, &request.body);
    }
    loop {
        match coming.get() {
            Some(Ok(Ok(response))) => return read(request, response),
            Some(Ok(Err(error))) => return Err(failed(request, &error)),
            Some(Err(())) => {
                return Err(Failure::retry(format_args!("the response from {} was taken before", request.url)));
            }
            None => coming.subscribe().block(),
        }
    }
}

fn write(body: OutgoingBody, bytes: &[u8]) -> Result<(), ()> {
    let stream = body.write()?;
    for chunk in bytes.chunks(WRITE_BYTES) {
        stream.blocking_write_and_flush(chunk).map_err(|_| ())?;
    }
    drop(stream);
    OutgoingBody::finish(body, None).map_err(|_| ())
}

fn read(request: &Request, response: IncomingResponse) -> Result<Response, Failure> {
    let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
    let headers =
        response.headers().entries().into_iter().map(|(name, value)| (name.to_ascii_lowercase(), text(value)));
    let (status, headers) = (response.status(), headers.collect());
    let torn = || Failure::retry(format_args!("the response from {} broke off", request.url));
    let incoming = response.consume().map_err(|()| torn())?;
    let stream = incoming.stream().map_err(|()| torn())?;
    let mut body = Vec::new();
    loop {
        match stream.blocking_read(READ_BYTES) {
            Ok(bytes) => body.extend_from_slice(&bytes),
            Err(StreamError::Closed) => return Ok(Response { status, headers, body }),
            Err(StreamError::LastOperationFailed(_)) => return Err(torn()),
        }
    }
}

fn method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        "PATCH" => Method::Patch,
        other => Method::Other(other.to_owned()),
    }
}

fn failed(request: &Request, error: &ErrorCode) -> Failure {
    let url = &request.url;
    match error {
        ErrorCode::HttpRequestDenied => Failure::dead(format_args!(
            "the request to {url} is refused, and the log says why; requests are granted at upload: module push --allow-http URL"
        )),
        ErrorCode::DestinationIpProhibited => Failure::dead(format_args!(
            "the request to {url} is refused, since it would go to an address that is not public; the log says which. \
             Where that is meant: module push --allow-http-private"
        )),
        ErrorCode::HttpRequestUriInvalid
        | ErrorCode::HttpRequestUriTooLong
        | ErrorCode::HttpRequestMethodInvalid
        | ErrorCode::HttpRequestBodySize(_)
        | ErrorCode::HttpResponseBodySize(_) => {
            Failure::dead(format_args!("the request to {url} cannot be made: {error:?}"))
        }
        error => Failure::retry(format_args!("the request to {url} failed: {error:?}")),
    }
}
