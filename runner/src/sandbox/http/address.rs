//! Which addresses a guest's request may go to. A name that a guest is allowed to call is its owner's to point
//! anywhere, at the host's own services and the cloud's metadata too, so what counts is the address. Those inside of
//! other addresses (IPv4 within IPv6) count as well.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address is, where it is not simply somebody's on the Internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Special {
    /// Of this machine or this network: refused unless the module was granted private addresses.
    Private(&'static str),
    /// Never a place for a guest's request: the link itself, where clouds keep their metadata, groups, nobody.
    Never(&'static str),
}

use Special::{Never, Private};

/// None: anybody may be called there.
pub(super) fn special(address: IpAddr) -> Option<Special> {
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

fn special_v4(address: Ipv4Addr) -> Option<Special> {
    match address.octets() {
        [0, ..] => Some(Never("an unspecified address")),
        [127, ..] => Some(Private("a loopback address")),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Some(Private("a private address")),
        [100, 100, 100, 200] | [192, 0, 0, 192] => Some(Never("an address of a cloud's metadata")),
        [100, 64..=127, ..] => Some(Private("an address of a carrier's NAT")),
        [168, 63, 129, 16] => Some(Never("an address of a cloud's host")),
        [169, 254, ..] => Some(Never("a link-local address, where clouds keep their metadata")),
        [192, 0, 0, _] => Some(Private("an address reserved for protocols")),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Some(Private("an address of documentation")),
        [192, 88, 99, _] => Some(Private("an address of 6to4 relays")),
        [198, 18..=19, ..] => Some(Private("an address of benchmarks")),
        [224..=239, ..] => Some(Never("a multicast address")),
        [240..=255, ..] => Some(Never("a reserved address")),
        _ => None,
    }
}

fn special_v6(address: Ipv6Addr) -> Option<Special> {
    let segments = address.segments();
    let within = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some(Never("an unspecified address")),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(Private("a loopback address")),
        [0, 0, 0, 0, 0, 0xffff, high, low] => Some(translated(within(high, low), "an IPv4-mapped address")),
        [0, 0, 0, 0, 0xffff, 0, high, low] => Some(translated(within(high, low), "an IPv4-translated address")),
        [0, 0, 0, 0, 0, 0, high, low] => Some(translated(within(high, low), "an IPv4-compatible address")),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(translated(within(high, low), "an address of NAT64")),
        [0x64, 0xff9b, 1, _, _, _, high, low] => Some(translated(within(high, low), "an address of a local NAT64")),
        [0x2002, high, low, ..] => Some(translated(within(high, low), "an address of 6to4")),
        // The client's address is in there with its bits flipped.
        [0x2001, 0, _, _, _, _, high, low] => Some(translated(within(!high, !low), "an address of Teredo")),
        [0x100, 0, 0, 0, ..] => Some(Never("an address that discards")),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Some(Private("an address of documentation")),
        [0x2001, 0x2, 0, ..] => Some(Private("an address of benchmarks")),
        // Where AWS and Google keep their metadata.
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => {
            Some(Never("an address of a cloud's metadata"))
        }
        [0xfc00..=0xfdff, ..] => Some(Private("a private address")),
        [0xfe80..=0xfebf, ..] => Some(Never("a link-local address")),
        [0xfec0..=0xfeff, ..] => Some(Private("a site-local address")),
        [0xff00..=0xffff, ..] => Some(Never("a multicast address")),
        _ => None,
    }
}

/// Nobody needs these to reach what lies behind them, so they are never simply fine.
fn translated(within: Ipv4Addr, how: &'static str) -> Special {
    match special_v4(within) {
        Some(never @ Never(_)) => never,
        Some(Private(_)) | None => Private(how),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_is_known_at_both_ends() {
        let table = [
            ("never", "0.0.0.0", "0.255.255.255"),
            ("private", "127.0.0.1", "127.255.255.255"),
            ("private", "10.0.0.0", "10.255.255.255"),
            ("private", "172.16.0.0", "172.31.255.255"),
            ("private", "192.168.0.0", "192.168.255.255"),
            ("private", "100.64.0.0", "100.127.255.255"),
            ("never", "100.100.100.200", "192.0.0.192"),
            ("never", "169.254.0.0", "169.254.255.255"),
            ("never", "169.254.169.254", "169.254.170.2"),
            ("private", "192.0.0.0", "192.0.0.255"),
            ("private", "192.0.2.0", "192.0.2.255"),
            ("private", "198.18.0.0", "198.19.255.255"),
            ("private", "198.51.100.0", "203.0.113.255"),
            ("private", "192.88.99.0", "192.88.99.255"),
            ("never", "224.0.0.0", "239.255.255.255"),
            ("never", "240.0.0.0", "255.255.255.255"),
            ("never", "::", "::"),
            ("private", "::1", "::1"),
            ("private", "::ffff:127.0.0.1", "::ffff:8.8.8.8"),
            ("never", "::ffff:169.254.169.254", "::ffff:0.0.0.0"),
            ("private", "::7f00:1", "::a00:1"),
            ("never", "::a9fe:a9fe", "::a9fe:a9fe"),
            ("private", "64:ff9b::7f00:1", "64:ff9b::808:808"),
            ("never", "64:ff9b::a9fe:a9fe", "64:ff9b::a9fe:a9fe"),
            ("private", "64:ff9b:1::808:808", "64:ff9b:1:ffff::7f00:1"),
            ("never", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1:ffff::a9fe:a9fe"),
            ("private", "::ffff:0:808:808", "::ffff:0:7f00:1"),
            ("never", "::ffff:0:a9fe:a9fe", "fd20:ce::254"),
            ("never", "168.63.129.16", "::ffff:168.63.129.16"),
            ("private", "2002:7f00:1::1", "2002:808:808::1"),
            ("never", "2002:a9fe:a9fe::1", "2002:a9fe:a9fe::1"),
            ("private", "2001:0:1:2:3:4:f7f7:f7f7", "2001:0:1:2:3:4:80ff:fffe"),
            ("never", "2001:0:1:2:3:4:5601:5601", "2001:0:1:2:3:4:5601:5601"),
            ("never", "100::1", "100::ffff:ffff:ffff:ffff"),
            ("private", "2001:db8::1", "3fff:fff::1"),
            ("private", "2001:2::1", "2001:2::ffff"),
            ("private", "fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("never", "fd00:ec2::254", "fd00:ec2::254"),
            ("never", "fe80::1", "febf::1"),
            ("private", "fec0::1", "feff::1"),
            ("never", "ff02::1", "ff0e::1"),
        ];
        for (wanted, first, last) in table {
            for address in [first, last] {
                let found = special(address.parse().expect("an address"));
                let is_right = match found {
                    Some(Private(_)) => wanted == "private",
                    Some(Never(_)) => wanted == "never",
                    None => false,
                };
                assert!(is_right, "{address} is {found:?}, not {wanted}");
            }
        }
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "169.253.255.255",
            "192.0.1.0",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "2003::1",
            "4000::1",
        ] {
            assert_eq!(special(address.parse().expect("an address")), None, "{address}");
        }
    }
}
