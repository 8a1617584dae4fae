"""Pools, and what belongs to one data channel."""

import collections

import pyverbs.enums as e
from pyverbs.mr import MR

from bootstrap import check


class Lent:
    """A pool of ours that the peer writes to, or in a send mode its credits."""

    def __init__(self, device, ref, count, size, sends):
        self.ref, self.count, self.size, self.sends = ref, count, size, sends
        access = e.IBV_ACCESS_LOCAL_WRITE | (0 if sends else e.IBV_ACCESS_REMOTE_WRITE)
        self.mr = MR(device.pd, count * size, access)
        self.out, self.unreturned = set(range(count)), []

    def take(self, element):
        check(element in self.out, f"element {element} of pool {self.ref} is not the peer's to use")
        self.out.remove(element)
        self.unreturned.append(element)

    def due(self):
        return len(self.unreturned) >= (self.count + 3) // 4


class Granted:
    """A pool of the peer's: what we may use of it."""

    def __init__(self, ref, count, size, rkey, address, channel):
        self.ref, self.count, self.size, self.rkey, self.address, self.channel = ref, count, size, rkey, address, channel
        self.available, self.ready = collections.deque(range(count)), set(range(count))
        self.posted, self.leaving = 0, False

    def use(self, element):
        self.ready.remove(element)
        return element

    def give(self, element):
        check(element < self.count and element not in self.ready, f"update of element {element} of pool {self.ref}, which is not out")
        self.ready.add(element)
        self.available.append(element)


class DataChannel:
    """What belongs to one data channel."""

    def __init__(self, number, channel):
        self.number, self.channel = number, channel
        self.receives = 0  # posted in mode imm, which replace each other
        self.backlog = collections.deque()  # frames that wait for credits
        self.flight = collections.deque()  # (pool, element, length, told by indication)
        self.done = []  # (reference, element, length), to be indicated
        self.unacknowledged = collections.deque()  # sets of (reference, element)
        self.held = None  # mode imm: the element whose return everything waits for
        self.taken = 0  # indications since the last update
        self.tx_seq = self.rx_seq = self.lost = 0  # send modes
        self.dry = None  # mode send-uc: since when there has been no credit
