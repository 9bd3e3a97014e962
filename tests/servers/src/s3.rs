//! What the servers that speak S3 have in common: where their programs are, and how a bucket is made.

use std::{
    env,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
};

/// Where a program of the Python environment of the test servers is: in `TEST_SERVERS`, else in `test-servers` of the
/// target directory, else on the path.
pub(crate) fn found_program(name: &str) -> Option<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target")), PathBuf::from);
    let environment = env::var_os("TEST_SERVERS").map_or_else(|| target.join("test-servers"), PathBuf::from);
    let on_path = env::var_os("PATH").unwrap_or_default();
    let dirs = [environment.join("bin")].into_iter().chain(env::split_paths(&on_path));
    dirs.map(|dir| dir.join(name)).find(|program| program.is_file())
}

/// The same of one that must be there.
///
/// # Panics
/// When it is not installed.
pub(crate) fn program(name: &str, package: &str) -> PathBuf {
    found_program(name).unwrap_or_else(|| {
        panic!(
            "{name} is not installed: run scripts/test once, or put it into a Python environment of your own \
             (pip install '{package}') and name that in TEST_SERVERS"
        )
    })
}

/// Asks for an object or a bucket by this method; the status, or `None` if there was no answer.
pub(crate) fn request(address: SocketAddr, method: &str, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let head = String::from_utf8_lossy(&answer);
    head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

/// Makes a bucket; an answer is all that is asked for, since it may be there.
pub(crate) fn make_bucket(address: SocketAddr, bucket: &str) {
    let status = crate::process::wait_for("the bucket to be made", || {
        request(address, "PUT", &format!("/{bucket}")).filter(|status| *status < 500)
    });
    assert!(status == 200 || status == 409, "the bucket {bucket} was not made: {status}");
}
