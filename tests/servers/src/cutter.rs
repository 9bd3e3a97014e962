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

/// Who sends bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Whoever connects: a cut loses a request, or a part of it.
    Caller,
    /// The server: a cut loses an answer, or a part of it, to what was done.
    Server,
}

/// Forwards bytes between its callers and a server, and cuts all connections when one side has sent so many bytes, or at
/// once. It ends with the process.
#[derive(Debug)]
pub struct Cutter {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// How many bytes callers, and the server, may still send; `u64::MAX`: any number.
    allowances: [AtomicU64; 2],
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
        let shared = Arc::new(Shared { allowances: [u64::MAX; 2].map(AtomicU64::new), open: Mutex::default() });
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

    /// Cuts every connection as soon as this side has sent so many bytes from now on, on all connections together. Later
    /// connections pass.
    pub fn cut_after(&self, side: Side, bytes: u64) {
        self.shared.allowances[side as usize].store(bytes, Ordering::SeqCst);
    }

    /// Cuts every connection now. Later connections pass.
    ///
    /// # Panics
    /// When a connection has panicked.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Whether the cut that was asked for has happened. Takes back what was asked for.
    pub fn has_cut(&self) -> bool {
        let left = self.shared.allowances.iter().map(|allowance| allowance.swap(u64::MAX, Ordering::SeqCst));
        left.collect::<Vec<_>>() == [u64::MAX; 2]
    }
}

impl Shared {
    fn join(self: &Arc<Self>, caller: &TcpStream, server: &TcpStream) {
        self.open.lock().unwrap().extend([caller.try_clone().unwrap(), server.try_clone().unwrap()]);
        let (from, to) = (caller.try_clone().unwrap(), server.try_clone().unwrap());
        let counted = self.clone();
        thread::spawn(move || copy(from, to, |bytes| counted.spend(Side::Caller, bytes)));
        let (from, to) = (server.try_clone().unwrap(), caller.try_clone().unwrap());
        let counted = self.clone();
        thread::spawn(move || copy(from, to, |bytes| counted.spend(Side::Server, bytes)));
    }

    /// Whether the bytes may pass.
    fn spend(&self, side: Side, bytes: u64) -> bool {
        let allowance = &self.allowances[side as usize];
        let spent = allowance.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
            u64::MAX => None,
            left => Some(left.saturating_sub(bytes)),
        });
        if spent.is_ok_and(|left| left <= bytes) {
            allowance.store(u64::MAX, Ordering::SeqCst);
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
