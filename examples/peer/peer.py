#!/usr/bin/python3
"""A splitnic peer, written from docs/protocol.md alone.

It shares no code with splitnic and is for people who want to write a peer of
their own: section numbers in it are those of the document. Two roles:

  peer.py --device DEV --key host.pem --trust sha256:... IOUNIT LOCAL-IP TARGET-IP
      plays a host. It opens a session, resolves TARGET-IP and pings it in
      several sizes, has pools come and go, reads the statistics, and leaves.
      Exit status 0: every echo brought back what it had carried.

  peer.py --device DEV --key unit.pem --trust sha256:... --serve ADDRESS LOCAL-IP
      plays an I/O unit with a LAN of one machine, itself, which answers ARP
      and ICMP echo at LOCAL-IP. It serves one host until that says bye.

It needs Debian's python3-pyverbs, python3-openssl and python3-cryptography, and
is simple rather than fast: one thread, which polls.
"""

import argparse
import secrets
import socket
import struct
import sys

import pyverbs.enums as e
from pyverbs.mr import MR

from bootstrap import Bootstrap, Breach, Ended, check, key_hash, own_key, platform
from ciphers import CIPHERS, Seals, choose
from rdma import Channel, Device
from session import (FILTER, LINK, MAC, MAX_MESSAGE, MTU, OFFLOADS, OK, STATS, UNSUPPORTED, VLANS, Session)
from station import Station
from transfers import FLUSHED, GET, OVERHEAD

PORT = 7580
COUNTERS = ("rx_frames rx_bytes tx_frames tx_bytes rx_dropped rx_too_long rx_invalid rx_filtered "
            "tx_dropped tx_source tx_vlan").split()


def receives(mode, n, p):
    """Returns how many control receives are needed for n data channels and p pools of the peer on each (4.4)."""
    return n * (4 * p + (18 if mode == "indicate" else 2)) + 16


def check_channels(channels, n):
    check(len(channels) == n + 1 and len({c["qpn"] for c in channels}) == n + 1, f"{len(channels)} channels for {n} queues")


def channels(o, device, mode, n, own, peer, mtu, tag):
    """Makes the channels of a session and posts the receives of the control channel."""
    size = (16 + OVERHEAD + mtu + tag + 63) // 64 * 64
    count, slot = receives(mode, n, peer), MAX_MESSAGE + tag
    control = Channel(device, False, receives(mode, n, own), count, slot)
    inbox = MR(device.pd, count * slot, e.IBV_ACCESS_LOCAL_WRITE)
    for i in range(count):
        control.receive(i, inbox, i * slot, slot)
    data = [Channel(device, mode == "send-uc", 64, max(own * min(o.elements, 256), o.elements), size) for _ in range(n)]
    return control, data, inbox, size


def open_session(o):
    """Opens a session as a host."""
    mtu = o.mtu
    raw = socket.create_connection((o.address, PORT), o.handshake_timeout)
    boot = Bootstrap(o, raw)
    run = secrets.token_hex(16)
    wish = {} if o.encrypt == "no" else {"ciphers": o.cipher}
    if o.encrypt == "required":
        wish["encrypt"] = True
    boot.send(type="hello", magic="splitnic", versions={"min": 1, "max": 1}, features=[], name=o.name, software="peer.py",
              modes=[o.mode], queues=o.queues, pools=o.pools, max_mtu=mtu, offloads=[], run=run,
              **wish)
    w = boot.expect("welcome")
    mode, n = w["mode"], w["queues"]
    check(w["version"] == 1 and mode == o.mode and 1 <= n <= o.queues and 68 <= w["mtu"] <= mtu, f"welcome: {w}")
    check(w.get("platform") in (None, platform(key_hash(own_key(o.key).public_key()), run)),
          "welcome: the platform identifier is not ours")
    cipher = w.get("cipher")
    check(cipher is None or cipher in wish.get("ciphers", []), f"welcome: cipher {cipher!a}, which was not offered")
    if o.encrypt == "required" and not cipher:
        boot.send(type="bye", code="encryption", message="this session would not be encrypted")
        raise Ended("the I/O unit does not encrypt")
    seals = Seals(cipher, boot, o.serve, n)
    p = {"own": 1, "peer": 1} if mode.startswith("send") else {"own": o.pools, "peer": w["pools"]}
    check_channels(w["channels"], n)
    check(w["control_receives"] >= receives(mode, n, p["own"]), f"welcome: {w['control_receives']} control receives")
    device = Device(o.device)
    control, data, inbox, size = channels(o, device, mode, n, p["own"], p["peer"], mtu, seals.tag)
    for own, peer in zip([control] + data, w["channels"]):
        own.connect(peer)
    boot.send(type="accept", control_receives=receives(mode, n, p["peer"]), channels=[c.describe() for c in [control] + data])
    boot.expect("ready")
    boot.send(type="ready")
    s = Session(o, boot, device, control, inbox, data, mode, p, seals)
    return start(s, size), bytes.fromhex(w["mac"].replace(":", ""))


def serve_session(o):
    """Waits for a host and opens a session as the I/O unit."""
    listener = socket.create_server((o.address, PORT))
    print(f"listening on {o.address}", flush=True)
    raw, _ = listener.accept()
    listener.close()
    boot = Bootstrap(o, raw)
    hello = boot.expect("hello")
    check(hello["magic"] == "splitnic", "hello without magic")
    refusal = None
    encrypted, cipher = choose(o, hello)
    if not hello["versions"]["min"] <= 1 <= hello["versions"]["max"]:
        refusal = ("version", "this is version 1")
    elif o.mode not in hello["modes"]:
        refusal = ("mode", f"{o.mode} is all there is")
    elif encrypted and not cipher:
        refusal = ("encryption", "there is no cipher that both of us have and want")
    if refusal:
        boot.send(type="refuse", code=refusal[0], message=refusal[1], versions={"min": 1, "max": 1}, retry=False)
        raise Ended(f"refused: {refusal[1]}")
    mode, n, mtu = o.mode, min(hello["queues"], o.queues), min(hello["max_mtu"], o.mtu)
    p = {"own": 1, "peer": 1} if mode.startswith("send") else {"own": o.pools, "peer": hello["pools"]}
    device, seals = Device(o.device), Seals(cipher, boot, o.serve, n)
    control, data, inbox, size = channels(o, device, mode, n, p["own"], p["peer"], mtu, seals.tag)
    mac = hello.get("mac", "02:00:5e:00:00:02")
    issued = {}
    if "run" in hello:
        issued = {"platform": platform(key_hash(boot.peer_key()), hello["run"]), "run": secrets.token_hex(16)}
    boot.send(type="welcome", version=1, features=[], session=secrets.token_hex(8), name=o.name, software="peer.py", mode=mode,
              queues=n, pools=p["own"], mac=mac, mtu=mtu, link={"up": True, "speed_mbps": 0}, offloads=[],
              control_receives=receives(mode, n, p["peer"]), channels=[c.describe() for c in [control] + data],
              **issued, **({"cipher": cipher} if cipher else {}))
    accept = boot.expect("accept")
    check_channels(accept["channels"], n)
    check(accept["control_receives"] >= receives(mode, n, p["own"]), f"accept: {accept['control_receives']} control receives")
    for own, peer in zip([control] + data, accept["channels"]):
        own.connect(peer)
    boot.send(type="ready")
    boot.expect("ready")
    s = Session(o, boot, device, control, inbox, data, mode, p, seals)
    s.answers = {MAC: bytes.fromhex(mac.replace(":", "")), MTU: struct.pack("!I", mtu), LINK: struct.pack("!II", 1, 0),
                 OFFLOADS: bytes(4), FILTER: struct.pack("!IHH", 2, 0, 0), VLANS: bytes(512)}
    return start(s, size), bytes.fromhex("02005e000001")


def start(s, size):
    """Does what comes first in a session: lends a pool on each data channel."""
    s.size = size
    for d in s.data.values():
        s.lend(d, s.o.elements, size)
    return s


def play_host(o):
    s, mac = open_session(o)
    try:
        station = Station(s, mac, o.local)
        s.until(lambda: len(s.granted) >= len(s.data), "pools of the I/O unit")
        print("granted", [(p.ref, p.count, p.size) for p in s.granted.values()])
        target = station.resolve(o.target)
        seq = 0
        for count, size in (3, 0), (5, 56), (5, 1400), (o.count, 200):
            seq = station.ping(*target, seq, count, size)
        if not s.sends:
            seq = pools_come_and_go(s, station, target, seq)
        check(s.ask(FILTER, struct.pack("!IHH", 0, 0, 0)) == (OK, bytes(8)), "receive filter")
        check(s.ask(99)[0] == UNSUPPORTED, "an unknown request was not answered so")
        status, data = s.ask(STATS)
        counters = dict(zip(COUNTERS, struct.unpack(f"!{len(data) // 8}Q", data)))
        print("statistics", status, counters)
        if o.mode != "send-uc" and min(counters["rx_frames"], counters["tx_frames"]) < seq:
            raise ValueError(f"{seq} echoes, but the statistics are {counters}")
        print("events", dict(s.events))
        s.close(code="shutting-down", message="done")
        print(f"{seq} echoes answered, {station.again} requests sent again")
        return 0 if station.again == 0 or o.mode == "send-uc" else 1
    except Breach as err:
        s.close(code="protocol", message=str(err))
        raise


def pools_come_and_go(s, station, target, seq):
    """Asks for a pool, gives one back, and takes one of its own back."""
    before = set(s.granted)
    s.say(GET, struct.pack("!III", s.size + 512, 32, 1))
    s.ask(MTU)  # when that is answered, the Get has been dealt with
    for ref in set(s.granted) - before:
        print("asked for and got", s.granted[ref].count, "elements of", s.granted[ref].size)
    seq = station.ping(*target, seq, 100, 100)
    s.ask_flush(granted=[min(s.granted)])
    if not any(p.channel == 1 for p in s.granted.values()):
        raise ValueError("the I/O unit has lent one pool only, and lends no other when asked")
    seq = station.ping(*target, seq, 100, 100)
    lent = s.of(s.data[1])
    if len(lent) < s.p:
        s.lend(s.data[1], s.o.elements, s.size)
    s.ask_flush(lent=[lent[0].ref])
    if not s.of(s.data[1]):
        s.lend(s.data[1], s.o.elements, s.size)
    if s.o.wait_flush:
        # The pool that was asked for is not used any more: it will be asked back.
        s.until(lambda: s.events[f"sent {FLUSHED}"], "BufferPoolFlushRequest for an idle pool", 120)
        print("pools left:", sorted(s.granted))
    return station.ping(*target, seq, 100, 100)


def play_iounit(o):
    s, mac = serve_session(o)
    try:
        Station(s, mac, o.local)
        while True:
            s.step()
    except Ended as err:
        print(err, dict(s.events))
        s.close()
        return 0 if str(err).startswith("bye") else 1
    except Breach as err:
        s.close(code="protocol", message=str(err))
        raise


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("address", help="of the I/O unit; with --serve to listen on")
    a.add_argument("local", help="IPv4 address to have")
    a.add_argument("target", nargs="?", help="IPv4 address to ping")
    a.add_argument("--serve", action="store_true", help="play an I/O unit")
    a.add_argument("--device", required=True, help="RDMA device")
    a.add_argument("--key", required=True, help="private key, PEM")
    a.add_argument("--trust", help="fingerprint of the other side's key")
    a.add_argument("--insecure", action="store_true")
    a.add_argument("--encrypt", default="allowed", choices=["required", "allowed", "no"], help="frames and messages")
    a.add_argument("--cipher", action="append", choices=CIPHERS, help="in order of preference; default: all")
    a.add_argument("--name", default="peer")
    a.add_argument("--mode", default="imm", choices=["imm", "indicate", "send", "send-uc"])
    a.add_argument("--queues", type=int, default=1)
    a.add_argument("--pools", type=int, default=2)
    a.add_argument("--elements", type=int, default=64, choices=range(1, 1001), metavar="N", help="of each pool lent, 1000 at most")
    a.add_argument("--first-reference", type=int, default=0, help="from 256 on, immediate data cannot name it")
    a.add_argument("--mtu", type=int, default=1500)
    a.add_argument("--count", type=int, default=400, help="echoes in a row")
    a.add_argument("--wait-flush", action="store_true", help="stay until the I/O unit has asked a pool back")
    a.add_argument("--peer-timeout", type=float, default=1.0, help="seconds of silence")
    a.add_argument("--handshake-timeout", type=float, default=10.0, help="seconds for each message of the handshake")
    o = a.parse_args()
    o.cipher = o.cipher or list(CIPHERS)
    return play_iounit(o) if o.serve else play_host(o)


if __name__ == "__main__":
    sys.exit(main())
