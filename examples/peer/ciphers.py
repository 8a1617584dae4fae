"""Encryption of what travels on the channels of a session (section 10)."""

import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from bootstrap import Breach

CIPHERS = {"aes-128-gcm": (AESGCM, 16), "aes-256-gcm": (AESGCM, 32), "chacha20-poly1305": (ChaCha20Poly1305, 32)}
TAG = 16
LABEL = b"EXPERIMENTAL-splitnic-frames"
EPOCH = 100  # far fewer than are allowed, so that a short session has several epochs


def choose(o, hello):
    """Reports as the I/O unit whether a session has to be encrypted, and with which cipher; None if there is none."""
    offered = hello.get("ciphers", [])
    common = [c for c in offered if c in o.cipher and o.encrypt != "no"]
    if not hello.get("encrypt") and o.encrypt != "required":
        return False, None
    last = "chacha20-poly1305"
    if last in common and last in (offered[0], o.cipher[0]):
        return True, last
    return True, common[0] if common else None


def expand(secret, info, size):
    return HKDFExpand(SHA256(), size, info).derive(secret)


class Keys:
    """The keys of one direction of a channel, one epoch after the other."""

    def __init__(self, cipher, secret, direction, channel):
        self.aead, self.size = CIPHERS[cipher]
        self.begin(expand(secret, b"splitnic channel " + cipher.encode() + struct.pack("!BH", direction, channel), 32))

    def begin(self, secret):
        """Begins an epoch."""
        self.key = self.aead(expand(secret, b"key", self.size))
        self.iv = int.from_bytes(expand(secret, b"iv", 12), "big")
        self.next = expand(secret, b"next", 32)

    def nonce(self, number):
        return (self.iv ^ number).to_bytes(12, "big")


class Sealer(Keys):
    number = 0  # of the next transfer or message

    def seal(self, plain, data=b""):
        if self.number and self.number % EPOCH == 0:
            self.begin(self.next)
        sealed = self.key.encrypt(self.nonce(self.number), plain, data)
        self.number += 1
        return sealed


class Opener(Keys):
    number = 0  # of the one that is expected

    def open(self, sealed, data=b"", number=None):
        """Returns what was sealed; number is that of a channel on which messages can be lost."""
        number = self.number if number is None else number
        before = self.key, self.iv, self.next
        for _ in range(number - self.number + 2):
            try:
                plain = self.key.decrypt(self.nonce(number), sealed, data)
                self.number = number + 1
                return plain
            except InvalidTag:
                self.begin(self.next)
        self.key, self.iv, self.next = before
        raise Breach(f"transfer or message {number} is not authentic")


class Clear:
    """Seals and opens in a session that is not encrypted."""

    def seal(self, plain, data=b""):
        return plain

    def open(self, sealed, data=b"", number=None):
        return sealed


class Seals:
    """Those of all channels of a session."""

    def __init__(self, cipher, boot, serve, queues):
        self.tag = TAG if cipher else 0
        if cipher is None:
            self.out = self.into = [Clear()] * (queues + 1)
            return
        secret = boot.export(LABEL)
        self.out = [Sealer(cipher, secret, int(serve), i) for i in range(queues + 1)]
        self.into = [Opener(cipher, secret, int(not serve), i) for i in range(queues + 1)]


def bound(ref, element, size, mode):
    """Returns the associated data of a transfer of so many bytes."""
    return struct.pack("!III", ref, element, size) + mode.encode()
