"""The bootstrap connection: TLS, frames of JSON, heartbeats and bye (section 1)."""

import json
import os
import socket
import ssl
import struct
import subprocess
import tempfile
import time
from base64 import urlsafe_b64encode
from hashlib import sha256


class Breach(Exception):
    """The peer broke the protocol (section 6)."""


class Ended(Exception):
    """The peer ended the session."""


def check(ok, what):
    if not ok:
        raise Breach(what)


def certificate(key, directory):
    """Makes a self-signed certificate of a key; nobody looks at anything but the key."""
    path = os.path.join(directory, "cert.pem")
    subprocess.run(["openssl", "req", "-x509", "-new", "-key", key, "-subj", "/CN=peer", "-days", "3650", "-out", path],
                   check=True, capture_output=True)
    return path


def key_hash(cert):
    """Returns the hash of a DER certificate's key."""
    pem = subprocess.run(["openssl", "x509", "-inform", "DER", "-pubkey", "-noout"],
                         input=cert, check=True, capture_output=True).stdout
    spki = subprocess.run(["openssl", "pkey", "-pubin", "-outform", "DER"],
                          input=pem, check=True, capture_output=True).stdout
    return sha256(spki).digest()


def fingerprint(cert):
    """Returns the fingerprint of a DER certificate's key."""
    return "sha256:" + urlsafe_b64encode(key_hash(cert)).decode().rstrip("=")


def own_hash(key):
    """Returns the hash of the key in a file."""
    spki = subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-outform", "DER"], check=True, capture_output=True).stdout
    return sha256(spki).digest()


def platform(hash_of_key, run):
    """Returns the platform identifier of the process with that key and that run (1.2)."""
    return sha256(b"splitnic platform" + hash_of_key + bytes.fromhex(run)).hexdigest()[:16]


def tls(o, server):
    """Returns the TLS context of one side (1.1)."""
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    c.minimum_version = ssl.TLSVersion.TLSv1_3
    c.set_alpn_protocols(["splitnic-insecure" if o.insecure else "splitnic"])
    if server:
        c.num_tickets = 0
    else:
        c.check_hostname = False
    c.verify_mode = ssl.CERT_NONE  # the client looks at the fingerprint afterwards
    if server and not o.insecure:
        # This module cannot ask for a certificate without judging it.
        c.verify_mode = ssl.CERT_REQUIRED
        c.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        c.load_verify_locations(o.peer_cert)
    with tempfile.TemporaryDirectory() as d:
        c.load_cert_chain(certificate(o.key, d), o.key)
    return c


class Bootstrap:
    """The TLS connection: frames of JSON, heartbeats and bye (1.2, 1.3)."""

    def __init__(self, sock, peer_timeout, handshake_timeout):
        self.sock, self.buffer, self.interval = sock, b"", peer_timeout / 5
        self.handshake_timeout = handshake_timeout
        self.next_heartbeat = None
        ms = int(peer_timeout * 1000)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, ms)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sock.selected_alpn_protocol() is None:
            raise Ended("the peer is no splitnic, or one of us is insecure")

    def send(self, **message):
        payload = json.dumps(message).encode() if message else b""
        self.sock.settimeout(self.handshake_timeout)
        self.sock.sendall(struct.pack("!I", len(payload)) + payload)

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
        self.sock.settimeout(self.handshake_timeout)
        while (m := self.frame()) is None:
            if not (data := self.sock.recv(65536)):
                raise Ended("the bootstrap connection ended in the handshake")
            self.buffer += data
        if m.get("type") in ("refuse", "bye"):
            raise Ended(f"{m['type']}: {m.get('code')}: {m.get('message')!a}")
        check(m.get("type") == kind, f"bootstrap: {m.get('type')!a} instead of {kind}")
        return m

    def service(self):
        """Sends a heartbeat when it is time, and looks whether the session goes on."""
        if time.monotonic() >= (self.next_heartbeat or 0):
            self.next_heartbeat = time.monotonic() + self.interval
            self.send()
        self.sock.settimeout(0)
        try:
            data = self.sock.recv(65536)
            if not data:
                raise Ended("the peer died")
            self.buffer += data
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        while (m := self.frame()) is not None:
            if m.get("type") == "bye":
                raise Ended(f"bye: {m.get('code')}")
            check(not m, f"bootstrap: {m.get('type')!a} after the handshake")
