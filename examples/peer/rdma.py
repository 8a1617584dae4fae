"""Queue pairs and memory: what the protocol needs of verbs."""

import glob
import os
import secrets
import socket
import sys

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR


class Device:
    """An RDMA device, its port 1 and its protection domain."""

    def __init__(self, name):
        self.context = Context(name=name)
        self.pd = PD(self.context)
        self.path_mtu = 128 << self.context.query_port(1).active_mtu
        for path in sorted(glob.glob(f"/sys/class/infiniband/{name}/ports/1/gids/*")):
            index = int(os.path.basename(path))
            gid = open(path).read().strip()
            try:
                kind = open(f"/sys/class/infiniband/{name}/ports/1/gid_attrs/types/{index}").read().strip()
            except OSError:
                continue  # an empty entry
            if kind == "RoCE v2" and gid.startswith("0000:0000:0000:0000:0000:ffff:"):
                self.gid, self.gid_index = gid, index
                return
        sys.exit(f"{name} has no RoCE v2 GID with an IPv4 address")


class Channel:
    """A queue pair with its completion queues, and memory to send from."""

    def __init__(self, device, uc, sends, receives, slot):
        self.device, self.uc = device, uc
        self.sent, self.received = CQ(device.context, sends + 1), CQ(device.context, receives + 1)
        cap = QPCap(max_send_wr=sends, max_recv_wr=receives, max_send_sge=1, max_recv_sge=1)
        kind = e.IBV_QPT_UC if uc else e.IBV_QPT_RC
        self.qp = QP(device.pd, QPInitAttr(qp_type=kind, scq=self.sent, rcq=self.received, cap=cap, sq_sig_all=1))
        self.attr = QPAttr(port_num=1)
        self.attr.qp_access_flags = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
        self.qp.to_init(self.attr)
        self.psn = secrets.randbits(24)
        self.source, self.slot, self.free = MR(device.pd, sends * slot, e.IBV_ACCESS_LOCAL_WRITE), slot, list(range(sends))

    def describe(self):
        return {"qpn": self.qp.qp_num, "psn": self.psn, "gid": self.device.gid.replace(":", ""), "lid": 0,
                "mtu": self.device.path_mtu}

    def connect(self, peer):
        gid = ":".join(peer["gid"][i:i + 4] for i in range(0, 32, 4))
        route = GlobalRoute(dgid=GID(gid), sgid_index=self.device.gid_index, hop_limit=64)
        a = self.attr
        a.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        a.dest_qp_num, a.rq_psn, a.sq_psn = peer["qpn"], peer["psn"], self.psn
        a.path_mtu = (min(peer["mtu"], self.device.path_mtu) // 128).bit_length() - 1
        a.min_rnr_timer, a.timeout, a.retry_cnt, a.rnr_retry = 12, 18, 6, 0
        a.max_rd_atomic = a.max_dest_rd_atomic = 0
        self.qp.to_rts(a)

    def receive(self, slot, mr, offset, length):
        self.qp.post_recv(RecvWR(wr_id=slot, num_sge=1, sg=[SGE(mr.buf + offset, length, mr.lkey)]))

    def send(self, opcode, data, imm=0, rkey=0, address=0):
        """Posts one work request; the slot it uses is free when it has completed."""
        slot = self.free.pop()
        self.source.write(data, len(data), slot * self.slot)
        wr = SendWR(wr_id=slot, opcode=opcode, num_sge=1, send_flags=e.IBV_SEND_SOLICITED, imm_data=socket.htonl(imm),
                    sg=[SGE(self.source.buf + slot * self.slot, len(data), self.source.lkey)])
        if opcode != e.IBV_WR_SEND:
            wr.set_wr_rdma(rkey, address)
        self.qp.post_send(wr)

    @staticmethod
    def poll(cq):
        """Returns the next completion; None if there is none."""
        n, wcs = cq.poll(1)
        if not n:
            return None
        if wcs[0].status != e.IBV_WC_SUCCESS:
            raise ConnectionError(f"work completion with status {wcs[0].status}")
        return wcs[0]
