"""A session after the handshake: control messages, pools and credits (sections 2 and 4)."""

import select
import struct
import time

import pyverbs.enums as e

from bootstrap import Breach, Ended, check
from pools import Granted
from transfers import ANSWER, ASK, FLUSH, FLUSHED, GET, INDICATE, POOL, UPDATE, Transfers

MAC, MTU, LINK, KEEP_ALIVE, OFFLOADS, FILTER, VLANS, STATS, CLEAR, RESET, SENT = range(1, 12)
OK, UNSUPPORTED, INVALID = range(3)
MAX_MESSAGE = 4096


class Session(Transfers):
    """What both roles do after the handshake. p are the most pools on each data channel: own, and the peer's."""

    def __init__(self, o, boot, device, control, inbox, data, mode, p, seals):
        super().__init__(o, device, control, data, mode, seals)
        self.boot, self.inbox, self.peer_pools, self.p = boot, inbox, p["peer"], p["own"]
        self.past = set()  # references of pools that are no longer granted
        self.context, self.requests, self.replies = 0, {}, {}
        self.flush_of_peer = None
        self.answers = {}  # of an I/O unit: request type -> value in force

    def close(self, **bye):
        if bye:
            self.boot.send(type="bye", **bye)
        self.boot.sock.close()
        self.device.context.close()

    # -- messages out

    def say(self, function, body, context=0):
        while not self.control.free:
            self.sent_completions()
        self.control.send(e.IBV_WR_SEND, self.seals.out[0].seal(struct.pack("!HHQ", function, 1, context) + body))
        self.events[f"sent {function}"] += 1

    def request(self, kind, data=b""):
        """Sends a CfgUtilRequest, when fewer than 4 are unanswered; returns its context."""
        while len(self.requests) >= 4:
            self.step()
        self.context += 1
        self.requests[self.context] = kind
        self.say(ASK, struct.pack("!II", kind, len(data)) + data, self.context)
        return self.context

    def ask(self, kind, data=b""):
        """Sends a request and waits for status and data of the reply."""
        context = self.request(kind, data)
        self.until(lambda: context in self.replies, f"reply to request {kind}")
        return self.replies.pop(context)

    # -- messages in

    def control_in(self):
        busy, slot = False, MAX_MESSAGE + self.seals.tag
        while wc := self.control.poll(self.control.received):
            busy, self.heard = True, time.monotonic()
            message = self.inbox.read(wc.byte_len, wc.wr_id * slot)
            self.control.receive(wc.wr_id, self.inbox, wc.wr_id * slot, slot)
            message = self.seals.into[0].open(message)
            check(wc.opcode == e.IBV_WC_RECV and len(message) >= 12, "not a control message")
            function, version, context = struct.unpack("!HHQ", message[:12])
            check(version == 1, f"version {version} of a message")
            handler = {POOL: self.on_pool, GET: self.on_get, UPDATE: self.on_update, FLUSH: self.on_flush,
                       FLUSHED: self.on_flushed, INDICATE: self.on_indicate, ASK: self.on_ask, ANSWER: self.on_answer}.get(function)
            check(handler and not (self.sends and function in (GET, FLUSH, FLUSHED, INDICATE)), f"function {function} in mode {self.mode}")
            self.events[f"got {function}"] += 1
            try:
                handler(message[12:], context)
            except struct.error as err:
                raise Breach(f"function {function} with {len(message)} bytes: {err}") from err
        return busy

    def on_pool(self, body, _):
        check(body, "an empty BufferRecvPool")
        for ref, count, size, rkey, address, context in struct.iter_unpack("!IIIIQQ", body):
            d = self.data.get(context & 0xffff)
            check(d and ref < 2**31 and 0 < count <= 65536 and size >= 64, f"pool {ref} of {count} elements of {size} bytes")
            check(ref not in self.granted, f"pool reference {ref} is in use")
            used = sum(p.channel == d.number for p in self.granted.values())
            check(used < (1 if self.sends else self.peer_pools), "more pools than agreed on")
            check(not self.sends or rkey == address == 0, "pool memory in a send mode")
            self.past.discard(ref)
            self.granted[ref] = Granted(ref, count, size, rkey, address, d.number)

    def on_update(self, body, _):
        check(body, "an empty BufferRecvPoolUpdate")
        while body:
            ref, n = struct.unpack_from("!II", body)
            check(0 < n <= 65536, f"update of {n} elements")
            elements = struct.unpack_from(f"!{n}H", body, 8)
            end = 8 + 2 * (n + n % 2)
            check(len(body) >= end and not any(body[8 + 2 * n:end]), "padding of an update")
            body = body[end:]
            pool = self.granted.get(ref)
            check(pool or ref in self.past, f"update of pool {ref}, which is not lent")
            for element in elements:
                if pool:
                    pool.give(element)
                for d in self.data.values():
                    if d.held == (ref, element):
                        d.held = None
                    last = max((i for i, told in enumerate(d.unacknowledged) if (ref, element) in told), default=-1)
                    for _ in range(last + 1):
                        d.unacknowledged.popleft()

    def on_indicate(self, body, _):
        transfers = list(struct.iter_unpack("!III", body))
        check(transfers and transfers[0][0] in self.lent, "a BufferRDMAIndicate of a pool that is not lent")
        d = self.data[self.lent[transfers[0][0]].channel]
        self.arrived(d)
        for ref, element, length in transfers:
            pool = self.lent.get(ref)
            check(pool and pool.channel == d.number, f"BufferRDMAIndicate of pool {ref}")
            self.written(pool, element, length)
        if self.mode == "imm":
            self.update([pool])
            return
        d.taken += 1
        if d.taken == 8:
            self.update(self.of(d))
        for pool in self.of(d):
            if pool.due():
                self.update([pool])

    def on_get(self, body, _):
        size, count, number = struct.unpack("!III", body)
        d = self.data.get(number)
        check(d and size >= 64 and 0 < count <= 65536, "BufferRecvPoolGet")
        if len(self.of(d)) < self.p and size <= 65563 + self.seals.tag:
            self.lend(d, min(count, self.o.elements), size)

    # -- pools that go (4.3)

    def ask_flush(self, lent=(), granted=()):
        """Takes pools of ours back and gives pools of the peer's back; returns when that is done."""
        for ref in granted:
            self.granted[ref].leaving = True
        self.until(lambda: all(self.quiet(self.granted[r]) for r in granted), "writes to be over")
        self.context += 1
        self.flush = (self.context, set(lent), set(granted))
        self.say(FLUSH, b"".join(struct.pack("!I", r) for r in lent) +
                 b"".join(struct.pack("!I", r | 1 << 31) for r in granted), self.context)
        self.until(lambda: self.flush is None, "BufferPoolFlushReply")

    def quiet(self, pool):
        """Reports whether nothing of a granted pool is outstanding or to be told."""
        return pool.posted == 0 and all(ref != pool.ref for ref, _, _ in self.data[pool.channel].done)

    def on_flushed(self, body, context):
        check(not body and self.flush and self.flush[0] == context, "a BufferPoolFlushReply to nothing")
        _, lent, granted = self.flush
        self.flush = None
        self.drop_lent(lent)
        self.drop_granted(granted)

    def on_flush(self, body, context):
        check(body and self.flush_of_peer is None, "BufferPoolFlushRequest")
        refs = [r for r, in struct.iter_unpack("!I", body)]
        granted = [r for r in refs if r < 2**31]
        lent = [r & 2**31 - 1 for r in refs if r >= 2**31]
        check(all(r in self.granted for r in granted) and all(r in self.lent for r in lent), "flush of a pool that is not lent")
        for r in granted:
            self.granted[r].leaving = True
        self.flush_of_peer = (context, lent, granted)

    def answer_flush(self):
        context, lent, granted = self.flush_of_peer
        if all(self.quiet(self.granted[r]) for r in granted):
            self.drop_lent(lent)
            self.drop_granted(granted)
            self.flush_of_peer = None
            self.say(FLUSHED, b"", context)

    def drop_lent(self, refs):
        for r in refs:
            if r in self.lent:
                self.arrived(self.data[self.lent[r].channel])
                if self.mode == "indicate":
                    self.update([self.lent[r]])  # acknowledges what told of it
                self.lent.pop(r).mr.close()

    def drop_granted(self, refs):
        for r in refs:
            self.granted.pop(r, None)
            self.past.add(r)

    # -- requests

    def on_ask(self, body, context):
        kind, n = struct.unpack_from("!II", body)
        data = body[8:]
        check(n == len(data) <= 4072, "size of a CfgUtilRequest")
        status, value = OK, b""
        if kind == SENT and self.mode == "send-uc":
            number, seq = struct.unpack("!IQ", data) if n == 12 else (0, 0)
            if d := self.data.get(number):
                self.arrived(d)
                pool = self.of(d)[0]
                check(seq <= d.rx_seq + pool.count, f"{seq} sent, of which {d.rx_seq} are known")
                self.skip(d, pool, seq)
                self.update([pool])
            else:
                status = INVALID
        elif self.o.serve:
            status, value = self.serve_request(kind, data)
        elif kind in (MAC, MTU, LINK):
            value = data  # a host with a netdevice would set it up accordingly
            print(f"the I/O unit tells: {kind} is {data.hex()}")
        elif kind != KEEP_ALIVE:
            status = UNSUPPORTED
        self.say(ANSWER, struct.pack("!III", kind, status, len(value)) + value, context)

    def serve_request(self, kind, data):
        """Answers a host's request: everything it wants, it gets."""
        if kind in (KEEP_ALIVE, RESET):
            return OK, b""
        if kind in (STATS, CLEAR):
            return OK, struct.pack("!QQ", self.frames_in, 0)
        if kind not in self.answers:
            return UNSUPPORTED, b""
        if data and kind != LINK:
            self.answers[kind] = data
        return OK, self.answers[kind]

    def on_answer(self, body, context):
        kind, status, n = struct.unpack_from("!III", body)
        check(self.requests.pop(context, None) == kind and n == len(body) - 12, "a CfgUtilReply to nothing")
        if kind not in (KEEP_ALIVE, SENT):
            self.replies[context] = (status, body[12:])

    # -- the loop

    def step(self):
        """Does what there is to do, or waits for a moment."""
        self.boot.service()
        busy = self.sent_completions()
        busy |= self.control_in()
        now = time.monotonic()
        for d in self.data.values():
            busy |= self.arrived(d)
            self.indicate(d)
            self.pump(d)
            if self.mode == "send-uc" and d.dry and now - d.dry > 0.05 and SENT not in self.requests.values():
                self.request(SENT, struct.pack("!IQ", d.number, d.tx_seq))
                d.dry = now
        if self.flush_of_peer:
            self.answer_flush()
        if now - self.heard > 0.25 and KEEP_ALIVE not in self.requests.values():
            self.request(KEEP_ALIVE)
        if now - self.heard > self.o.peer_timeout:
            raise Ended(f"nothing heard for {self.o.peer_timeout} s")
        if not busy:
            select.select([self.boot.sock], [], [], 0.001)

    def until(self, condition, what, seconds=30):
        end = time.monotonic() + seconds
        while not condition():
            self.step()
            if time.monotonic() > end:
                raise TimeoutError(f"no {what} within {seconds} s")
