"""The bootstrap connection: TLS, frames of JSON, heartbeats and bye (section 1)."""

import datetime
import json
import select
import socket
import struct
import time
from base64 import urlsafe_b64encode
from hashlib import sha256

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519, ed448
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from OpenSSL import SSL, crypto


class Breach(Exception):
    """The peer broke the protocol (section 6)."""


class Ended(Exception):
    """The peer ended the session."""


def check(ok, what):
    if not ok:
        raise Breach(what)


def own_key(path):
    with open(path, "rb") as f:
        return load_pem_private_key(f.read(), None)


def certificate(key):
    """Makes a self-signed certificate of a key; nobody looks at anything but the key."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "peer")])
    now = datetime.datetime.utcnow()
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(),
                                      now - datetime.timedelta(1), now + datetime.timedelta(3650))
    return builder.sign(key, None if isinstance(key, (ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey)) else SHA256())


def key_hash(public):
    """Returns the hash of a public key."""
    return sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


def fingerprint(public):
    """Returns the fingerprint of a public key."""
    return "sha256:" + urlsafe_b64encode(key_hash(public)).decode().rstrip("=")


def platform(hash_of_key, run):
    """Returns the platform identifier of the process with that key and that run (1.2)."""
    return sha256(b"splitnic platform" + hash_of_key + bytes.fromhex(run)).hexdigest()[:16]


def tls(o):
    """Returns the TLS context of one side (1.1). Python's own module ssl exports no keys, which encryption needs
    (10), and asks for no certificate without judging it by authorities. pyOpenSSL does both."""
    protocol = b"splitnic-insecure" if o.insecure else b"splitnic"

    def trusted(_connection, cert, _error, depth, _ok):
        return depth > 0 or o.insecure or fingerprint(cert.get_pubkey().to_cryptography_key()) == o.trust

    def select_protocol(_connection, offered):
        if protocol not in offered:
            raise Ended("the peer is no splitnic, or one of us is insecure")
        return protocol

    c = SSL.Context(SSL.TLS_METHOD)
    c.set_min_proto_version(SSL.TLS1_3_VERSION)
    c.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    c.set_options(SSL.OP_NO_TICKET)
    c.set_alpn_protos([protocol])
    c.set_alpn_select_callback(select_protocol)
    c.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, trusted)
    c.use_certificate(crypto.X509.from_cryptography(certificate(own_key(o.key))))
    c.use_privatekey_file(o.key)
    return c


class Bootstrap:
    """The TLS connection: frames of JSON, heartbeats and bye (1.2, 1.3)."""

    def __init__(self, o, sock):
        self.buffer, self.interval = b"", o.peer_timeout / 5
        self.handshake_timeout = o.handshake_timeout
        self.next_heartbeat = None
        ms = int(o.peer_timeout * 1000)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, ms)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        self.sock = SSL.Connection(tls(o), sock)
        self.sock.set_accept_state() if o.serve else self.sock.set_connect_state()
        self.patiently(self.sock.do_handshake)
        if not self.sock.get_alpn_proto_negotiated():
            raise Ended("the peer is no splitnic, or one of us is insecure")

    def patiently(self, call, *args):
        """Calls until the call need not wait."""
        end = time.monotonic() + self.handshake_timeout
        while (left := end - time.monotonic()) > 0:
            try:
                return call(*args)
            except SSL.WantReadError:
                select.select([self.sock], [], [], left)
            except SSL.WantWriteError:
                select.select([], [self.sock], [], left)
            except SSL.Error as err:
                raise Ended(f"the peer died: {err!r}") from err
        raise TimeoutError(f"nothing from the peer for {self.handshake_timeout} s")

    def peer_key(self):
        return self.sock.get_peer_certificate().to_cryptography().public_key()

    def export(self, label):
        """Exports 32 bytes of the connection (RFC 8446, 7.5)."""
        return self.sock.export_keying_material(label, 32)

    def send(self, **message):
        payload = json.dumps(message).encode() if message else b""
        data = struct.pack("!I", len(payload)) + payload
        while data:
            data = data[self.patiently(self.sock.send, data):]

    def frame(self):
        """Takes a frame out of the buffer; None if there is none."""
        if len(self.buffer) < 4:
            return None
        n = struct.unpack("!I", self.buffer[:4])[0]
        check(n <= 65536, f"bootstrap frame of {n} bytes")
        if len(self.buffer) < 4 + n:
            return None
        payload, self.buffer = self.buffer[4:4 + n], self.buffer[4 + n:]
        if not payload:
            return {}
        try:
            message = json.loads(payload)
        except ValueError as err:
            raise Breach(f"bootstrap: {err}") from err
        check(isinstance(message, dict) and isinstance(message.get("type"), str), "bootstrap: no type")
        return message

    def expect(self, kind):
        """Waits for a message of the handshake."""
        while (m := self.frame()) is None:
            self.buffer += self.patiently(self.sock.recv, 65536)
        if m.get("type") in ("refuse", "bye"):
            raise Ended(f"{m['type']}: {m.get('code')}: {m.get('message')!a}")
        check(m.get("type") == kind, f"bootstrap: {m.get('type')!a} instead of {kind}")
        return m

    def service(self):
        """Looks whether the session goes on, and sends a heartbeat when it is time."""
        end = None
        while not end:
            try:
                self.buffer += self.sock.recv(65536)
            except (SSL.WantReadError, SSL.WantWriteError):
                break
            except SSL.Error as err:
                end = err
        while (m := self.frame()) is not None:
            if m.get("type") == "bye":
                raise Ended(f"bye: {m.get('code')}")
            check(not m, f"bootstrap: {m.get('type')!a} after the handshake")
        if end:
            raise Ended(f"the peer died: {end!r}")
        if time.monotonic() >= (self.next_heartbeat or 0):
            self.next_heartbeat = time.monotonic() + self.interval
            self.send()
