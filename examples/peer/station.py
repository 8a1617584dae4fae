"""ARP and ICMP echo, by hand, over the frames of a session (section 5)."""

import os
import socket
import struct
import time


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data[:len(data) & ~1])) + (data[-1] << 8 if len(data) % 2 else 0)
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


class Station:
    """A machine with one address, as far as ARP and ICMP echo go."""

    def __init__(self, session, mac, address):
        self.session, self.mac, self.address = session, mac, socket.inet_aton(address)
        self.neighbours, self.answered, self.ident = {}, {}, os.getpid() & 0xffff
        self.turn = self.again = 0  # data channel last used; requests sent again
        session.on_frame = self.frame

    def send(self, to, kind, payload):
        self.turn = self.turn % len(self.session.data) + 1
        self.session.send_frame(self.turn, (to + self.mac + struct.pack("!H", kind) + payload).ljust(60, b"\0"))

    def arp(self, operation, mac, address):
        self.send(mac if operation == 2 else b"\xff" * 6, 0x0806,
                  struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation) + self.mac + self.address + mac + address)

    def icmp(self, mac, address, kind, rest):
        """Sends an ICMP message: what follows its checksum is rest."""
        icmp = struct.pack("!BBH", kind, 0, checksum(struct.pack("!BBH", kind, 0, 0) + rest)) + rest
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(icmp), 0, 0, 64, 1, 0) + self.address + address
        self.send(mac, 0x0800, ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:] + icmp)

    def frame(self, f):
        kind = struct.unpack("!H", f[12:14])[0]
        if kind == 0x0806 and len(f) >= 42:
            operation, mac, address, target = struct.unpack("!6xH6s4s6x4s", f[14:42])
            self.neighbours[address] = mac
            if operation == 1 and target == self.address:
                self.arp(2, mac, address)
        elif kind == 0x0800 and len(f) >= 42 and f[14] == 0x45 and f[23] == 1 and f[30:34] == self.address:
            icmp = f[34:14 + struct.unpack("!H", f[16:18])[0]]
            if checksum(icmp) != 0:
                raise ValueError(f"wrong ICMP checksum in a frame of {len(f)} bytes")
            if icmp[0] == 8:
                self.icmp(f[6:12], f[26:30], 0, icmp[4:])
            elif icmp[0] == 0:
                ident, seq = struct.unpack("!HH", icmp[4:8])
                if ident == self.ident:
                    self.answered[seq] = icmp[8:]

    def resolve(self, address):
        target = socket.inet_aton(address)
        for _ in range(30):
            self.arp(1, bytes(6), target)
            end = time.monotonic() + 1
            self.session.until(lambda: target in self.neighbours or time.monotonic() > end, "ARP")
            if target in self.neighbours:
                return self.neighbours[target], target
        raise TimeoutError(f"{address} does not answer ARP")

    def ping(self, mac, target, first, count, size, window=24):
        """Sends echo requests first, first + 1, ..., and checks what comes back."""
        payloads = {seq: bytes((seq * 7 + i) & 255 for i in range(size)) for seq in range(first, first + count)}
        todo, waiting, end = list(payloads), {}, time.monotonic() + 120
        while todo or waiting:
            now = time.monotonic()
            if now > end:
                raise TimeoutError(f"no answer to {len(waiting)} of {count} echo requests of {size} bytes")
            late = [seq for seq, sent in waiting.items() if now - sent > 5]
            self.again += len(late)
            new = [todo.pop(0) for _ in range(min(len(todo), window - len(waiting)))]
            for seq in late + new:
                self.icmp(mac, target, 8, struct.pack("!HH", self.ident, seq) + payloads[seq])
                waiting[seq] = now
            self.session.step()
            for seq in [seq for seq in waiting if seq in self.answered]:
                del waiting[seq]
                if self.answered.pop(seq) != payloads[seq]:
                    raise ValueError(f"echo {seq} of {size} bytes did not bring back what it had carried")
        return first + count
