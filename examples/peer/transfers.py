"""Data transfers in all modes, as initiator and as target (section 3)."""

import collections
import socket
import struct
import time

import pyverbs.enums as e

from bootstrap import check
from ciphers import bound
from pools import DataChannel, Lent

POOL, GET, UPDATE, FLUSH, FLUSHED, DATA, INDICATE, ASK, ANSWER = range(1, 10)
VNET = 10  # bytes of virtio_net_hdr before each Ethernet frame
OVERHEAD = VNET + 14 + 4  # what a frame may have besides its MTU


class Transfers:
    """The data channels of a session. A Session says, that is sends, its control messages."""

    def __init__(self, o, device, control, data, mode, seals):
        self.o, self.device, self.control, self.mode, self.seals = o, device, control, mode, seals
        self.data = {i + 1: DataChannel(i + 1, c) for i, c in enumerate(data)}
        self.sends = mode.startswith("send")
        self.lent, self.granted, self.flush = {}, {}, None
        self.heard, self.frames_in, self.on_frame = time.monotonic(), 0, None
        self.events = collections.Counter()

    # -- pools lent

    def lend(self, d, count, size):
        """Lends a pool, with its receives posted first (4.1)."""
        busy = set(self.lent) | (self.flush[1] if self.flush else set())
        ref = next(r for r in range(self.o.first_reference, 2**31) if r not in busy)
        pool = self.lent[ref] = Lent(self.device, ref, count, size, self.sends)
        pool.channel = d.number
        if self.sends:
            for i in range(count):
                d.channel.receive(i, pool.mr, i * size, size)
        else:
            named = sum(min(q.count, 256) for q in self.lent.values() if q.channel == d.number and q.ref < 256)
            if self.mode == "indicate":
                named = 1  # notices a peer that sends what it must not
            while d.receives < named:
                d.channel.receive(0, self.control.source, 0, 0)
                d.receives += 1
        rkey, address = (0, 0) if self.sends else (pool.mr.rkey, pool.mr.buf)
        self.say(POOL, struct.pack("!IIIIQQ", ref, count, size, rkey, address, d.number))

    def update(self, pools):
        """Gives back all that is free of pools of one data channel (2.3)."""
        body = b""
        for pool in pools:
            if n := len(pool.unreturned):
                body += struct.pack(f"!II{n}H", pool.ref, n, *pool.unreturned) + (b"\0\0" if n % 2 else b"")
                pool.out.update(pool.unreturned)
                pool.unreturned = []
                self.data[pool.channel].taken = 0
        if body:
            self.say(UPDATE, body)

    def of(self, d):
        return [p for p in self.lent.values() if p.channel == d.number]

    # -- frames out

    def send_frame(self, number, frame):
        """Sends an Ethernet frame of which nothing is left undone."""
        self.data[number].backlog.append(bytes(VNET) + frame)
        self.pump(self.data[number])

    def pump(self, d):
        """Sends what credits allow of a channel's backlog (3)."""
        pools = [p for p in self.granted.values() if p.channel == d.number and not p.leaving]
        while d.backlog and d.channel.free and not d.held and pools:
            frame = d.backlog[0]
            size = len(frame) + self.seals.tag
            if self.sends:
                pool = pools[0]
                element = d.tx_seq % pool.count
                if element not in pool.ready:
                    d.dry = d.dry or time.monotonic()
                    return
                check(size + 16 <= pool.size, f"the peer's elements of {pool.size} bytes hold no frame")
                pool.use(element)
                header = struct.pack("!HHQI", DATA, 1, d.tx_seq, size)
                d.channel.send(e.IBV_WR_SEND, header + self.seal(d, pool, element, frame))
                d.tx_seq += 1
                d.dry, told = None, False
            else:
                least = size + (self.mode == "imm" and size == 65536)  # immediate data tells of one less
                fitting = [p for p in pools if p.size >= least]
                if not fitting:
                    self.events["dropped"] += 1
                    d.backlog.popleft()
                    continue
                pool = next((p for p in fitting if p.available), None)
                if pool is None:
                    return
                element = pool.use(pool.available.popleft())
                address = pool.address + element * pool.size
                data = self.seal(d, pool, element, frame)
                told = self.mode == "indicate" or pool.ref > 255 or element > 255 or size > 65535
                if told:
                    d.channel.send(e.IBV_WR_RDMA_WRITE, data, rkey=pool.rkey, address=address)
                    d.held = (pool.ref, element) if self.mode == "imm" else None
                else:
                    imm = pool.ref << 24 | element << 16 | size
                    d.channel.send(e.IBV_WR_RDMA_WRITE_WITH_IMM, data, imm, pool.rkey, address)
            d.backlog.popleft()
            pool.posted += 1
            d.flight.append((pool, element, size, told))

    def seal(self, d, pool, element, frame):
        return self.seals.out[d.number].seal(frame, bound(pool.ref, element, len(frame), self.mode))

    def open(self, d, pool, element, data, number=None):
        """Returns the frame of a transfer; number is that of a SendData (10)."""
        size = len(data) - self.seals.tag
        check(size > 0, f"{len(data)} bytes are no frame")
        return self.seals.into[d.number].open(data, bound(pool.ref, element, size, self.mode), number)

    def sent_completions(self):
        """Takes the completions of what was sent; tells of plain writes."""
        busy = False
        while wc := self.control.poll(self.control.sent):
            self.control.free.append(wc.wr_id)
            busy = True
        for d in self.data.values():
            while wc := d.channel.poll(d.channel.sent):
                busy = True
                d.channel.free.append(wc.wr_id)
                pool, element, length, told = d.flight.popleft()
                pool.posted -= 1
                if told:
                    d.done.append((pool.ref, element, length))
        return busy

    def indicate(self, d):
        while d.done and len(d.unacknowledged) < 16 and self.control.free:
            batch, d.done = d.done[:64], d.done[64:]
            d.unacknowledged.append({(ref, element) for ref, element, _ in batch})
            self.say(INDICATE, b"".join(struct.pack("!III", *t) for t in batch))

    # -- frames in

    def arrived(self, d):
        """Takes what has arrived on a data channel."""
        busy = False
        while wc := d.channel.poll(d.channel.received):
            busy, self.heard = True, time.monotonic()
            if self.sends:
                self.arrived_message(d, wc)
                continue
            imm = socket.ntohl(wc.imm_data)
            check(self.mode == "imm" and wc.opcode == e.IBV_WC_RECV_RDMA_WITH_IMM, "not an RDMA write with immediate data")
            pool = self.lent.get(imm >> 24)
            check(pool and pool.channel == d.number, f"pool {imm >> 24} is not lent on data channel {d.number}")
            check(imm & 0xffff == wc.byte_len, f"length {imm & 0xffff}, but {wc.byte_len} bytes arrived")
            self.written(pool, imm >> 16 & 255, imm & 0xffff)
            d.channel.receive(0, self.control.source, 0, 0)
            if pool.due():
                self.update([pool])
        return busy

    def written(self, pool, element, length):
        check(0 < length <= pool.size, f"length {length} in an element of {pool.size} bytes")
        pool.take(element)
        self.deliver(self.open(self.data[pool.channel], pool, element, pool.mr.read(length, element * pool.size)))

    def arrived_message(self, d, wc):
        """Takes a SendData (3.3)."""
        pool = self.of(d)[0]
        message = pool.mr.read(wc.byte_len, wc.wr_id * pool.size)
        check(wc.opcode == e.IBV_WC_RECV and len(message) > 16, "no SendData")
        function, version, seq, n = struct.unpack("!HHQI", message[:16])
        check(function == DATA and version == 1 and n == len(message) - 16, "no SendData")
        if seq < d.rx_seq and self.mode == "send-uc":
            self.events["late"] += 1
        else:
            check(seq == d.rx_seq or self.mode == "send-uc" and seq < d.rx_seq + pool.count,
                  f"sequence number {seq} instead of {d.rx_seq}")
            frame = self.open(d, pool, seq % pool.count, message[16:], seq)
            self.skip(d, pool, seq)
            pool.take(seq % pool.count)
            d.rx_seq += 1
            self.deliver(frame)
        d.channel.receive(wc.wr_id, pool.mr, wc.wr_id * pool.size, pool.size)
        if pool.due():
            self.update([pool])

    def skip(self, d, pool, seq):
        """Takes what comes before seq for lost."""
        while d.rx_seq < seq:
            pool.take(d.rx_seq % pool.count)
            d.rx_seq += 1
            self.events["lost"] += 1

    def deliver(self, frame):
        check(len(frame) >= 24, f"frame of {len(frame)} bytes")
        flags, gso = frame[0], frame[1]
        check(not flags & 1 and gso == 0, "a frame that is to be finished, though no offload was agreed on")
        self.frames_in += 1
        self.on_frame(frame[VNET:])
