#!/usr/bin/env python3
"""Decrypts the encrypted sessions of splitnic in a capture of the fabric, for who has their key log.

Reads a capture file and writes another one, in which the packets of these sessions have what they
had before they were encrypted. Needs python3-cryptography. docs/protocol.md, section 10, describes
the encryption, docs/capture.md the key log.
"""

import argparse
import collections
import struct
import sys

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
except ImportError as missing:
    sys.exit(f"{missing}: install python3-cryptography")

CIPHERS = {"aes-128-gcm": (AESGCM, 16), "aes-256-gcm": (AESGCM, 32), "chacha20-poly1305": (ChaCha20Poly1305, 32)}
TAG = 16
GAP = 4096  # numbers that are tried after packets that the capture does not have

# Opcodes of the base transport header, without the service in their upper three bits.
FIRST, LAST = {0, 6}, {2, 3, 4, 5, 8, 9, 10, 11, 22, 23}
SEND, WRITE, RETH, IMM = set(range(6)) | {22, 23}, set(range(6, 12)), {6, 10, 11}, {3, 5, 9, 11}
RC, UC = 0, 1


def expand(secret, info, size):
    return HKDFExpand(SHA256(), size, info).derive(secret)


class Opener:
    """Opens the transfers or messages of one direction of a channel."""

    def __init__(self, cipher, secret, direction, channel):
        self.aead, self.size = CIPHERS[cipher]
        self.number = 0  # of the one that is expected
        label = b"splitnic channel " + cipher.encode() + struct.pack("!BH", direction, channel)
        self.epoch = self.keys(expand(secret, label, 32))

    def keys(self, secret):
        key, iv = self.aead(expand(secret, b"key", self.size)), int.from_bytes(expand(secret, b"iv", 12), "big")
        return key, iv, expand(secret, b"next", 32)

    def open(self, sealed, data, numbers):
        """Returns what was sealed with one of the numbers, and the number; None if it was with none."""
        for epoch in self.epoch, self.keys(self.epoch[2]):
            for number in numbers:
                try:
                    plain = epoch[0].decrypt((epoch[1] ^ number).to_bytes(12, "big"), sealed, data)
                except InvalidTag:
                    continue
                self.epoch, self.number = epoch, number + 1
                return plain
        return None


class Session:
    """A session or direct connection of the key log."""

    def __init__(self, name, cipher, secret):
        self.name, self.cipher, self.secret = name, cipher, secret
        self.pools = {}, {}  # by direction of the transfers: reference to (elements, size, address, channel)

    def lent(self, direction, message):
        """Keeps the pools of a BufferRecvPool for transfers in a direction."""
        for at in range(12, len(message) - 31, 32):
            ref, count, size, _, address, context = struct.unpack_from("!IIIIQQ", message, at)
            self.pools[direction].pop(ref, None)  # so that the latest is last
            self.pools[direction][ref] = count, size, address, context & 0xffff


class Packet:
    """A record of the capture file: RoCE v2 if it has a flow."""

    def __init__(self, head, data):
        self.head, self.data, self.flow = head, data, None
        at, kind = 14, data[12:14]
        while kind in (b"\x81\x00", b"\x88\xa8"):
            at, kind = at + 4, data[at + 2:at + 4]
        self.ip, self.six = at, kind == b"\x86\xdd"
        if kind == b"\x08\x00" and data[at + 9:at + 10] == b"\x11":
            self.udp, ends = at + (data[at] & 15) * 4, data[at + 12:at + 20]
        elif self.six and data[at + 6:at + 7] == b"\x11":
            self.udp, ends = at + 40, data[at + 8:at + 40]
        else:
            return
        if len(data) < self.udp + 24 or data[self.udp + 2:self.udp + 4] != b"\x12\xb7":
            return
        bth = self.udp + 8
        end = self.udp + struct.unpack_from("!H", data, self.udp + 4)[0] - 4  # where the ICRC begins
        self.service, self.opcode = data[bth] >> 5, data[bth] & 31
        self.psn = int.from_bytes(data[bth + 9:bth + 12], "big")
        self.reth = bth + 12
        self.imm = self.reth + 16 * (self.opcode in RETH)
        self.begin = self.imm + 4 * (self.opcode in IMM | {22, 23})
        self.end = end - (data[bth + 1] >> 4 & 3)
        if self.service in (RC, UC) and self.opcode in SEND | WRITE and self.begin <= self.end <= len(data):
            self.flow = ends, data[bth + 5:bth + 8]

    def payload(self):
        return self.data[self.begin:self.end]

    def replace(self, payload):
        """Puts a payload of at most the same length in place of the packet's. The ICRC becomes 0."""
        pad = -len(payload) % 4
        data = bytearray(self.data[:self.begin] + payload + bytes(pad + 4))
        data[self.udp + 9] = data[self.udp + 9] & 0xcf | pad << 4
        struct.pack_into("!HH", data, self.udp + 4, len(data) - self.udp, 0)
        if self.six:
            struct.pack_into("!H", data, self.ip + 4, len(data) - self.udp)
        else:
            struct.pack_into("!H", data, self.ip + 2, len(data) - self.ip)
            struct.pack_into("!H", data, self.ip + 10, 0)
            total = sum(struct.unpack_from(f"!{(self.udp - self.ip) // 2}H", data, self.ip))
            while total >> 16:
                total = (total & 0xffff) + (total >> 16)
            struct.pack_into("!H", data, self.ip + 10, total ^ 0xffff)
        self.data = bytes(data)


class Flow:
    """What one queue pair sends to another."""

    def __init__(self, decrypter):
        self.decrypter, self.packets = decrypter, []  # of the message that is not complete
        self.expected = None  # PSN of the next packet
        self.missing = False  # packets, since the last message that was decrypted
        self.session = self.direction = self.channel = self.opener = None

    def take(self, p):
        """Takes a packet, and reports False if it was there before."""
        ahead = (p.psn - self.expected) % (1 << 24) if self.expected is not None else 0
        if ahead >= (1 << 24) - (1 << 16):
            return False
        if ahead:
            self.missing, self.packets = True, []
        if p.service == UC and p.opcode in FIRST | {4, 5, 10, 11}:
            self.packets = []  # the rest of a message that UC has lost never comes
        self.expected = (p.psn + 1) % (1 << 24)
        if self.packets or p.opcode in FIRST | {4, 5, 10, 11, 22, 23}:
            self.packets.append(p)
            if p.opcode in LAST:
                self.message(self.packets)
                self.packets = []
        return True

    def message(self, packets):
        """Decrypts a message or transfer."""
        sealed = b"".join(p.payload() for p in packets)
        if not sealed:
            return
        was = self.session, self.direction, self.channel, self.opener
        done = self.decrypt(packets, sealed)
        if not done and self.opener:
            # It may be another session, whose queue pair got the same number.
            self.opener = None
            if not (done := self.decrypt(packets, sealed)):
                self.session, self.direction, self.channel, self.opener = was
        self.missing = self.missing and not done
        if self.opener:
            self.decrypter.count[self.session.name, self.direction, self.channel, done] += 1

    def decrypt(self, packets, sealed):
        first, last = packets[0], packets[-1]
        if first.opcode in SEND:
            return self.control(packets, sealed) or self.send_data(packets, sealed)
        imm, = struct.unpack_from("!I", last.data, last.imm) if last.opcode in IMM else (None,)
        return self.written(packets, sealed, imm)

    def numbers(self):
        return range(self.opener.number, self.opener.number + 1 + (GAP if self.missing else 0))

    def control(self, packets, sealed):
        if not self.opener:
            for s in self.decrypter.sessions:
                for direction in 0, 1:
                    opener = Opener(s.cipher, s.secret, direction, 0)
                    plain = opener.open(sealed, b"", range(1))
                    if plain is not None:
                        self.session, self.direction, self.channel, self.opener = s, direction, 0, opener
                        return self.controlled(packets, plain)
        elif self.channel == 0:
            plain = self.opener.open(sealed, b"", self.numbers())
            return plain is not None and self.controlled(packets, plain)
        return False

    def controlled(self, packets, plain):
        if plain[:2] == b"\x00\x01":
            self.session.lent(1 - self.direction, plain)
        return self.put(packets, plain)

    def send_data(self, packets, sealed):
        function, version, seq, size = struct.unpack_from("!HHQI", sealed) if len(sealed) > 16 + TAG else (0,) * 4
        if (function, version, size) != (6, 1, len(sealed) - 16):
            return False
        header = sealed[:12] + struct.pack("!I", size - TAG)
        for s, direction, ref, pool in self.candidates():
            for mode in b"send", b"send-uc":
                data = struct.pack("!III", ref, seq % pool[0], size - TAG) + mode
                if (plain := self.transfer(s, direction, pool[3], sealed[16:], data, range(seq, seq + 1))) is not None:
                    return self.put(packets, header + plain)
        return False

    def written(self, packets, sealed, imm):
        size = len(sealed) - TAG
        if size <= 0 or imm is not None and imm & 0xffff != len(sealed):
            return False
        address, = struct.unpack_from("!Q", packets[0].data, packets[0].reth)
        for s, direction, ref, pool in self.candidates():
            element, rest = divmod(address - pool[2], pool[1])
            if rest or not 0 <= element < pool[0] or imm is not None and imm >> 16 != ref << 8 | element:
                continue
            for mode in b"imm", b"indicate":
                data = struct.pack("!III", ref, element, size) + mode
                if (plain := self.transfer(s, direction, pool[3], sealed, data, None)) is not None:
                    struct.pack_into("!I", first := bytearray(packets[0].data), packets[0].reth + 12, size)
                    packets[0].data = bytes(first)
                    if imm is not None:
                        struct.pack_into("!I", last := bytearray(packets[-1].data), packets[-1].imm, imm - TAG)
                        packets[-1].data = bytes(last)
                    return self.put(packets, plain)
        return False

    def candidates(self):
        """Yields the pools that a transfer can go to, the latest first."""
        for s in [self.session] if self.opener else self.decrypter.sessions:
            for direction in [self.direction] if self.opener else (0, 1):
                for ref, pool in reversed(list(s.pools[direction].items())):
                    if not self.opener or pool[3] == self.channel:
                        yield s, direction, ref, pool

    def transfer(self, session, direction, channel, sealed, data, numbers):
        opener = self.opener or Opener(session.cipher, session.secret, direction, channel)
        if numbers is None:
            numbers = self.numbers() if self.opener else range(1 + (GAP if self.missing else 0))
        plain = opener.open(sealed, data, numbers)
        if plain is not None:
            self.session, self.direction, self.channel, self.opener = session, direction, channel, opener
        return plain

    def put(self, packets, plain):
        """Puts the plaintext of a message into its packets."""
        for p in packets:
            n = p.end - p.begin
            p.replace(plain[:n])
            plain = plain[n:]
        return True


class Decrypter:
    """A capture that is decrypted."""

    def __init__(self, sessions):
        self.sessions, self.flows, self.repeated = sessions, {}, 0
        # Messages and transfers, by session, direction, channel, and whether they were decrypted.
        self.count = collections.Counter()

    def take(self, p):
        """Takes a packet, and reports False if it was sent again."""
        if p.flow is None:
            return True
        new = self.flows.setdefault(p.flow, Flow(self)).take(p)
        self.repeated += not new
        return new


def read_keys(path):
    sessions = []
    with open(path, encoding="utf-8", errors="replace") as f:
        for number, line in enumerate(f, 1):
            words = line.split()
            if words[:1] != ["SPLITNIC_FRAMES"]:
                continue  # of another program
            try:
                name, cipher, secret = words[1:]
                secret = bytes.fromhex(secret)
                assert cipher in CIPHERS and len(secret) == 32
            except (ValueError, AssertionError):
                sys.exit(f"{path}:{number}: not SPLITNIC_FRAMES, session, cipher and 32 bytes of secret")
            if name not in [s.name for s in sessions]:  # both ends may write to one file
                sessions.append(Session(name, cipher, secret))
    if not sessions:
        sys.exit(f"{path}: no SPLITNIC_FRAMES line: no encrypted session began while SSLKEYLOGFILE named this file")
    return sessions


def read_capture(path):
    """Returns the header of a capture file, and its records."""
    with open(path, "rb") as f:
        header = f.read(24)
        order = {b"\xa1\xb2": ">", b"\xd4\xc3": "<", b"\x4d\x3c": "<"}.get(header[:2])
        if len(header) < 24 or order is None:
            sys.exit(f"{path}: no capture file in the format pcap: convert it with editcap -F pcap")
        if struct.unpack(order + "I", header[20:])[0] & 0xffff != 1:
            sys.exit(f"{path}: not a capture of an Ethernet device")
        packets = []
        while len(head := f.read(16)) == 16:
            packets.append(Packet(head, f.read(struct.unpack(order + "I", head[8:12])[0])))
    return order, header, packets


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keys", metavar="KEYLOG", help="file that SSLKEYLOGFILE named when the session began")
    parser.add_argument("capture", metavar="CAPTURE", help="pcap file of the fabric, from before the session began")
    parser.add_argument("output", metavar="OUTPUT", help="pcap file to write")
    o = parser.parse_args()
    sessions = read_keys(o.keys)
    decrypter = Decrypter(sessions)
    order, header, packets = read_capture(o.capture)
    packets = [p for p in packets if decrypter.take(p)]
    with open(o.output, "wb") as f:
        f.write(header)
        for p in packets:
            f.write(p.head[:8] + struct.pack(order + "II", len(p.data), len(p.data)) + p.data)
    count = decrypter.count
    for name, direction, channel in sorted({key[:3] for key in count}):
        print(f"{name} {'to' if direction else 'from'} the host, channel {channel}: "
              f"{count[name, direction, channel, True]} decrypted, {count[name, direction, channel, False]} not",
              file=sys.stderr)
    if decrypter.repeated:
        print(f"{decrypter.repeated} packets were sent again and are left out", file=sys.stderr)
    if not count:
        sys.exit(f"{o.capture}: nothing of {len(sessions)} session{'s' * (len(sessions) > 1)} was found: "
                 "the capture has to begin before the session")


if __name__ == "__main__":
    try:
        main()
    except OSError as e:
        sys.exit(f"{e.filename or 'decrypt.py'}: {e.strerror}")
