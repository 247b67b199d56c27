"""Hosts that nothing of Muster's may be sent to, in every spelling that connecting takes: one table for every place
that takes somebody's address."""

from __future__ import annotations

NEVER = (
    # link-local: the metadata services of Amazon, Google, Azure, Oracle, Tencent, and containers' credentials
    "169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.23", "169.254.42.42", "2852039166", "0xa9fea9fe",
    "0xA9.0xFE.0xA9.0xFE", "025177524776", "0251.0376.0251.0376", "169.254.43518", "169.16689662", "0xa9.254.0251.0xfe",
    "１６９.254.169.254", "169。254。169。254", "①⑥⑨.254.169.254", "fe80::1", "fe80::a9fe:a9fe", "fe80::1%lo",
    "fe80::1%25lo", "febf::1",
    # the same within IPv6: mapped, NAT64, its local range, 6to4, Teredo, compatible, translated
    "::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "0:0:0:0:0:ffff:a9fe:a9fe", "64:ff9b::169.254.169.254",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::", "2002:a9fe:a9fe::1", "2001:0:1:2:3:4:5601:5601",
    "::169.254.169.254", "::ffff:0:169.254.169.254",
    # metadata services that lie elsewhere
    "fd00:ec2::254", "fd00:ec2::254%1", "fd00:0ec2:0:0:0:0:0:254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42",
    "100.100.100.200", "::ffff:100.100.100.200", "168.63.129.16", "2822734096", "192.0.0.192", "64:ff9b::c000:c0",
    # no servers at all
    "0.0.0.0", "0", "0x0", "::", "::ffff:0.0.0.0", "224.0.0.1", "239.255.255.250", "ff02::1", "240.0.0.1",
    "255.255.255.255",
)  # fmt: skip
"""Whatever is allowed."""

PRIVATE = (
    "127.0.0.1", "127.1", "127.0.1", "127.255.255.254", "2130706433", "0x7f000001", "017700000001", "0177.0.0.1",
    "0x7f.1", "１２７.0.0.1", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::",
    "10.0.0.1", "10.1", "167772161", "012.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "3232235777",
    "100.64.0.1", "198.18.0.1", "192.0.2.1", "192.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::",
    "2001:0:1:2:3:4:f5ff:fffe", "fc00::1", "fd00::1", "fd12:3456::1", "fec0::1", "feff::1", "2001:db8::1",
)  # fmt: skip
"""Only where their network is allowed."""


def netloc(host: str) -> str:
    """As it is written in a URL."""
    return f"[{host}]" if ":" in host else host
