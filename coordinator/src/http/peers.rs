//! What each address has of something bounded, so that none takes all of it.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Whom a bound counts as one: an IPv4 address, or the network of 64 bits that a host with IPv6 has for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Peer(IpAddr);

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(v6) if !v6.is_loopback() => {
                Self(IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))))
            }
            other => Self(other),
        }
    }
}

/// What is taken, by peer.
#[derive(Debug)]
pub(super) struct Shares {
    taken: Mutex<HashMap<Peer, usize>>,
    max_per_peer: usize,
}

impl Shares {
    /// None is taken; a peer may have this much.
    pub(super) fn new(max_per_peer: usize) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), max_per_peer })
    }

    /// Nothing yet, of this peer.
    pub(super) fn of(self: &Arc<Self>, peer: Peer) -> Share {
        Share { shares: self.clone(), peer, amount: 0 }
    }

    // A panic elsewhere leaves whole numbers.
    fn lock(&self) -> MutexGuard<'_, HashMap<Peer, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one thing of a peer has; given back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Arc<Shares>,
    peer: Peer,
    amount: usize,
}

impl Share {
    /// Takes this much more, or nothing if the peer would have too much.
    pub(super) fn grow(&mut self, more: usize) -> bool {
        let mut taken = self.shares.lock();
        let now = taken.get(&self.peer).copied().unwrap_or_default().saturating_add(more);
        if now > self.shares.max_per_peer {
            return false;
        }
        taken.insert(self.peer, now);
        drop(taken);
        self.amount += more;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.amount == 0 {
            return;
        }
        let mut taken = self.shares.lock();
        let left = taken.get(&self.peer).copied().unwrap_or_default().saturating_sub(self.amount);
        if left == 0 {
            taken.remove(&self.peer);
        } else {
            taken.insert(self.peer, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Peer {
        Peer::from(address.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn a_host_is_one_peer_whatever_it_calls_itself() {
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        assert_eq!(peer("2001:db8:1:2:3::4"), peer("2001:db8:1:2::9"));
        assert_ne!(peer("2001:db8:1:2::9"), peer("2001:db8:1:3::9"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
        assert_ne!(peer("::1"), peer("::2"));
    }

    #[test]
    fn a_peer_has_its_part_and_no_more_and_gives_it_back() {
        let shares = Shares::new(3);
        let mut one = shares.of(peer("10.0.0.1"));
        let mut two = shares.of(peer("10.0.0.1"));
        assert!(one.grow(2) && two.grow(1));
        assert!(!one.grow(1));
        assert!(shares.of(peer("10.0.0.2")).grow(3));
        drop(one);
        assert!(two.grow(2) && !two.grow(1));
        drop(two);
        assert!(shares.lock().is_empty());
    }
}
