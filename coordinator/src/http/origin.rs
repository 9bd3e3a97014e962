//! Whether a request may have been made by a page of another origin, or under a name that is not ours: a browser inside
//! the network would carry it out for a stranger.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use ratified_protocol::{Code, Problem};

use crate::config::ServerName;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What `Host` and `Origin` name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Address(IpAddr),
    Name(ServerName),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Authority {
    host: Host,
    port: Option<u16>,
}

/// Refuses what no honest client sends.
///
/// # Errors
/// `INVALID_ARGUMENT` for a request that two readers may understand differently, `CROSS_ORIGIN` for one that comes from
/// a page of another origin or is addressed to a name that is not ours.
pub(super) fn check(uri: &Uri, headers: &HeaderMap, server_names: &[ServerName]) -> Result<(), Problem> {
    if uri.scheme().is_some() || uri.authority().is_some() {
        return Err(invalid("the request's target", "must be a path; this is no proxy"));
    }
    let host = once(headers, &header::HOST)?.ok_or_else(|| invalid("Host", "missing"))?;
    once(headers, &header::AUTHORIZATION)?;
    let own = read_host(host, server_names)?;
    for origin in headers.get_all(header::ORIGIN) {
        let is_own = origin.to_str().is_ok_and(|origin| is_same_origin(origin, &own));
        if !is_own {
            return Err(foreign(format!("Origin: {origin:?} is not the origin that Host names")));
        }
    }
    for site in headers.get_all(SEC_FETCH_SITE) {
        if site != "same-origin" && site != "none" {
            return Err(foreign(format!("Sec-Fetch-Site: {site:?} is neither same-origin nor none")));
        }
    }
    Ok(())
}

fn once<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, Problem> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(invalid(name.as_str(), "comes more than once"));
    }
    Ok(first)
}

/// A name that an attacker's DNS resolves to our address is not one of ours.
fn read_host(value: &HeaderValue, server_names: &[ServerName]) -> Result<Authority, Problem> {
    let own = value.to_str().ok().and_then(authority);
    let own =
        own.ok_or_else(|| invalid("Host", format!("{value:?} is not a name or address with or without a port")))?;
    let is_ours = match &own.host {
        Host::Address(_) => true,
        Host::Name(name) => name.as_str() == "localhost" || server_names.contains(name),
    };
    if is_ours {
        return Ok(own);
    }
    Err(foreign(format!(
        "Host: {value:?} is neither an IP address, localhost nor one of server_names; an operator whose clients use this \
         name adds it to that key of the configuration"
    )))
}

/// A page knows its scheme, and `Host` does not: a port that is not written is that of the page's scheme.
fn is_same_origin(origin: &str, own: &Authority) -> bool {
    let Some((scheme, rest)) = origin.split_once("://") else { return false };
    let default_port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return false,
    };
    let port = |authority: &Authority| authority.port.unwrap_or(default_port);
    authority(rest).is_some_and(|page| page.host == own.host && port(&page) == port(own))
}

/// `name`, `name:port`, `1.2.3.4`, `[::1]:port`; a case of its own, and a dot at the end, make no other name.
fn authority(text: &str) -> Option<Authority> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            let address: Ipv6Addr = address.parse().ok()?;
            (Host::Address(IpAddr::V6(address).to_canonical()), port)
        }
        None => {
            let (host, port) = text.find(':').map_or((text, ""), |at| text.split_at(at));
            let address = host.parse().map(|address| Host::Address(IpAddr::V4(address)));
            (address.ok().or_else(|| Some(Host::Name(host.parse().ok()?)))?, port)
        }
    };
    let port = match port.strip_prefix(':') {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => Some(digits.parse().ok()?),
        Some(_) => return None,
        None if port.is_empty() => None,
        None => return None,
    };
    Some(Authority { host, port })
}

fn invalid(name: &str, problem: impl std::fmt::Display) -> Problem {
    Problem::new(Code::InvalidArgument, format!("{name}: {problem}"))
}

fn foreign(detail: String) -> Problem {
    Problem::new(Code::CrossOrigin, detail)
}

#[cfg(test)]
#[path = "origin_tests.rs"]
mod tests;
