//! A proxy of bytes that cuts connections: for servers of any protocol.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// Forwards bytes between its callers and a server, and cuts all connections when a caller has sent so many bytes, or at
/// once. It ends with the process.
#[derive(Debug)]
pub struct Cutter {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// How many bytes callers may still send; `u64::MAX`: any number.
    allowance: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

impl Cutter {
    /// A proxy in front of this address that cuts nothing yet.
    ///
    /// # Panics
    /// When it cannot listen.
    pub fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { allowance: AtomicU64::new(u64::MAX), open: Mutex::default() });
        let of_task = shared.clone();
        thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                if let Ok(server) = TcpStream::connect(server) {
                    of_task.join(&caller, &server);
                }
            }
        });
        Self { address, shared }
    }

    /// Where callers connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts every connection as soon as callers have sent this many bytes from now on. Later connections pass.
    pub fn cut_after(&self, bytes: u64) {
        self.shared.allowance.store(bytes, Ordering::SeqCst);
    }

    /// Cuts every connection now. Later connections pass.
    ///
    /// # Panics
    /// When a connection has panicked.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Whether the cut that was asked for has happened.
    pub fn has_cut(&self) -> bool {
        self.shared.allowance.load(Ordering::SeqCst) == u64::MAX
    }
}

impl Shared {
    fn join(self: &Arc<Self>, caller: &TcpStream, server: &TcpStream) {
        self.open.lock().unwrap().extend([caller.try_clone().unwrap(), server.try_clone().unwrap()]);
        let (from, to) = (caller.try_clone().unwrap(), server.try_clone().unwrap());
        let counted = self.clone();
        thread::spawn(move || copy(from, to, |bytes| counted.spend(bytes)));
        let (from, to) = (server.try_clone().unwrap(), caller.try_clone().unwrap());
        thread::spawn(move || copy(from, to, |_| true));
    }

    /// Whether the bytes may pass.
    fn spend(&self, bytes: u64) -> bool {
        let spent = self.allowance.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
            u64::MAX => None,
            left => Some(left.saturating_sub(bytes)),
        });
        if spent.is_ok_and(|left| left <= bytes) {
            self.allowance.store(u64::MAX, Ordering::SeqCst);
            self.cut();
            return false;
        }
        true
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, may_pass: impl Fn(u64) -> bool) {
    let mut buffer = [0; 4096];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        if !may_pass(bytes as u64) || to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
