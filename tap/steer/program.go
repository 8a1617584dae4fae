package steer

import (
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/tap/frameasm"
)

// The program's registers. Calls of the kernel's functions do not change them.
const (
	ctx    = frameasm.Context
	offset = frameasm.Offset
	flow   = asm.R8 // hash of the flow; before that, EtherType
	marked = asm.R9 // 1 if the DSCP is in Classes.DSCP, else 0
)

// Offsets in the program's stack.
const (
	header  = -64  // 40 bytes: Ethernet, or IP
	piece   = -8   // 8 bytes: VLAN tag, ports, type of ICMP
	total   = -72  // length of the IP packet
	proto   = -80  // protocol of the IP packet
	flowKey = -84  // key in the table of flows
	instant = -96  // value in that table
	begin   = -104 // length of the Ethernet header in the frame's data: 14, or 0 if the data begins behind it
)

// The labels of the verdicts.
const (
	toLatency = "latency" // the last queue
	toBulk    = "bulk"    // one of the others, by hash
	toFirst   = "first"   // the first queue, for frames without a flow
)

// assemble returns the rule as a program. The program returns a queue's number. A macvtap has
// no hook for that: at its ingress the program sets the hash of the frame, and the macvtap
// uses the remainder of the hash as the queue's number.
func (r Rule) assemble(h Hook, flows int) asm.Instructions {
	var p program
	p.Add(asm.Mov.Reg(ctx, asm.R1))
	if h == Fanout {
		// The data of a frame that came in begins behind the Ethernet header. That of a frame that
		// another socket on this machine sends begins with it (packet(7)).
		p.EtherType(flow)
		p.Add(
			asm.Mov.Imm(offset, 0),
			asm.LoadMem(asm.R1, ctx, frameasm.PacketType, asm.Word),
			asm.JNE.Imm(asm.R1, unix.PACKET_OUTGOING, "begun"),
			asm.Mov.Imm(offset, 14),
		)
		p.Label("begun")
	} else {
		p.Add(asm.Mov.Imm(offset, 0))
		p.Load(header, 14, toFirst)
		p.Half(flow, header+12)
		p.Add(asm.Mov.Imm(offset, 14))
	}
	p.Add(asm.StoreMem(asm.RFP, begin, offset, asm.DWord))
	p.SkipTags(flow, piece, toFirst)
	p.Add(
		asm.JEq.Imm(flow, unix.ETH_P_IP, "ipv4"),
		asm.JEq.Imm(flow, unix.ETH_P_IPV6, "ipv6"),
		asm.JNE.Imm(flow, unix.ETH_P_ARP, toFirst),
	)
	p.ifLonger(r.Limit, toFirst)
	p.Add(asm.Ja.Label(toLatency))
	r.ipv4(&p)
	r.ipv6(&p)
	r.transport(&p)
	r.verdict(&p, flows)
	r.queue(&p, h)
	return p.Instructions
}

// ipv4 reads the header at offset.
func (r Rule) ipv4(p *program) {
	p.Label("ipv4")
	p.Load(header, 20, toFirst)
	p.Add(
		asm.LoadMem(flow, asm.RFP, header+12, asm.Word),
		asm.LoadMem(asm.R1, asm.RFP, header+16, asm.Word),
		asm.Xor.Reg(flow, asm.R1),
		asm.LoadMem(asm.R1, asm.RFP, header+9, asm.Byte),
		asm.StoreMem(asm.RFP, proto, asm.R1, asm.DWord),
	)
	p.Half(asm.R1, header+2)
	p.Add(
		asm.StoreMem(asm.RFP, total, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.RFP, header+1, asm.Byte),
		asm.RSh.Imm(asm.R1, 2),
	)
	p.has(marked, r.DSCP, asm.R1)
	// All fragments of a packet are in one flow, whether they have ports or not.
	p.Half(asm.R1, header+6)
	p.Add(
		asm.And.Imm(asm.R1, 0x3fff),
		asm.JNE.Imm(asm.R1, 0, "hashed"),
		asm.LoadMem(asm.R1, asm.RFP, header, asm.Byte),
		asm.And.Imm(asm.R1, 15),
		asm.LSh.Imm(asm.R1, 2),
		asm.Add.Reg(offset, asm.R1),
		asm.Ja.Label("transport"),
	)
}

// ipv6 reads the header at offset. It does not follow extension headers: the flow of a packet
// with extension headers has no ports.
func (r Rule) ipv6(p *program) {
	p.Label("ipv6")
	p.Load(header, 40, toFirst)
	p.Add(
		asm.LoadMem(flow, asm.RFP, header+8, asm.DWord),
		asm.LoadMem(asm.R1, asm.RFP, header+24, asm.DWord),
		asm.Xor.Reg(flow, asm.R1),
		asm.LoadImm(asm.R1, frameasm.Golden, asm.DWord),
		asm.Mul.Reg(flow, asm.R1),
		asm.LoadMem(asm.R1, asm.RFP, header+16, asm.DWord),
		asm.Xor.Reg(flow, asm.R1),
		asm.LoadMem(asm.R1, asm.RFP, header+32, asm.DWord),
		asm.Xor.Reg(flow, asm.R1),
		asm.LoadMem(asm.R1, asm.RFP, header+6, asm.Byte),
		asm.StoreMem(asm.RFP, proto, asm.R1, asm.DWord),
	)
	p.Half(asm.R1, header+4)
	p.Add(
		asm.Add.Imm(asm.R1, 40),
		asm.StoreMem(asm.RFP, total, asm.R1, asm.DWord),
	)
	p.Half(asm.R1, header)
	p.Add(
		asm.RSh.Imm(asm.R1, 6),
		asm.And.Imm(asm.R1, 63),
	)
	p.has(marked, r.DSCP, asm.R1)
	p.Add(asm.Add.Imm(offset, 40))
}

// Types of ICMP and ICMPv6.
const (
	echoReply, echoRequest           = 0, 8
	echoRequest6, echoReply6         = 128, 129
	routerSolicitation, redirect     = 133, 137 // the other types of neighbour discovery are in between
	protoICMP, protoICMP6, protoSCTP = unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6, unix.IPPROTO_SCTP
)

// transport adds the ports to the hash, and checks the type of ICMP.
func (r Rule) transport(p *program) {
	p.Label("transport")
	p.Add(
		asm.LoadMem(asm.R1, asm.RFP, proto, asm.DWord),
		asm.JEq.Imm(asm.R1, unix.IPPROTO_TCP, "ports"),
		asm.JEq.Imm(asm.R1, unix.IPPROTO_UDP, "ports"),
		asm.JEq.Imm(asm.R1, protoSCTP, "ports"),
		asm.JEq.Imm(asm.R1, protoICMP, "icmp"),
		asm.JNE.Imm(asm.R1, protoICMP6, "hashed"),
	)
	p.Load(piece, 1, "hashed")
	p.Add(
		asm.LoadMem(asm.R1, asm.RFP, piece, asm.Byte),
		asm.JEq.Imm(asm.R1, echoRequest6, "control"),
		asm.JEq.Imm(asm.R1, echoReply6, "control"),
		asm.JLT.Imm(asm.R1, routerSolicitation, "hashed"),
		asm.JGT.Imm(asm.R1, redirect, "hashed"),
		asm.Ja.Label("control"),
	)
	p.Label("icmp")
	p.Load(piece, 1, "hashed")
	p.Add(
		asm.LoadMem(asm.R1, asm.RFP, piece, asm.Byte),
		asm.JEq.Imm(asm.R1, echoRequest, "control"),
		asm.JNE.Imm(asm.R1, echoReply, "hashed"),
	)
	p.Label("control")
	p.ifLonger(r.Limit, "hashed")
	p.Add(asm.Ja.Label(toLatency))
	p.Label("ports")
	p.Load(piece, 4, "hashed")
	p.Add(
		asm.LoadMem(asm.R1, asm.RFP, piece, asm.Half),
		asm.LoadMem(asm.R2, asm.RFP, piece+2, asm.Half),
		asm.Xor.Reg(asm.R1, asm.R2),
		asm.LSh.Imm(asm.R1, 32),
		asm.Xor.Reg(flow, asm.R1),
	)
	p.Label("hashed")
	p.Add(
		asm.LoadMem(asm.R1, asm.RFP, proto, asm.DWord),
		asm.LSh.Imm(asm.R1, 48),
		asm.Xor.Reg(flow, asm.R1),
		asm.LoadImm(asm.R1, frameasm.Golden, asm.DWord),
		asm.Mul.Reg(flow, asm.R1),
		asm.RSh.Imm(flow, 32),
	)
}

// verdict decides by the class of the frame and the history of its flow.
func (r Rule) verdict(p *program, flows int) {
	if r.Size == 0 {
		p.Add(asm.JEq.Imm(marked, 0, toBulk))
	} else {
		p.Add(
			asm.JNE.Imm(marked, 0, "sensitive"),
			asm.LoadMem(asm.R1, asm.RFP, total, asm.DWord),
			asm.JGT.Imm(asm.R1, int32(r.Size), "long"),
		)
		p.Label("sensitive")
	}
	p.ifLonger(r.Limit, "long")
	p.lookup(flows)
	p.Add(
		asm.JEq.Imm(asm.R0, 0, toLatency),
		asm.Mov.Reg(offset, asm.R0),
		asm.FnKtimeGetNs.Call(),
		asm.LoadMem(asm.R1, offset, 0, asm.DWord),
		asm.Mov.Reg(asm.R2, asm.R0),
		asm.Sub.Reg(asm.R2, asm.R1),
		asm.LoadImm(asm.R1, int64(r.Pause), asm.DWord),
		asm.JGE.Reg(asm.R2, asm.R1, toLatency),
		asm.StoreMem(offset, 0, asm.R0, asm.DWord),
		asm.Ja.Label(toBulk),
	)
	p.Label("long")
	p.lookup(flows)
	p.Add(
		asm.Mov.Reg(offset, asm.R0),
		asm.FnKtimeGetNs.Call(),
		asm.JEq.Imm(offset, 0, "unknown"),
		asm.StoreMem(offset, 0, asm.R0, asm.DWord),
		asm.Ja.Label(toBulk),
	)
	p.Label("unknown")
	p.Add(
		asm.StoreMem(asm.RFP, instant, asm.R0, asm.DWord),
		asm.LoadMapPtr(asm.R1, flows),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, flowKey),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, instant),
		asm.Mov.Imm(asm.R4, 0), // BPF_ANY
		asm.FnMapUpdateElem.Call(),
	)
}

// queue turns the verdict into a queue's number.
func (r Rule) queue(p *program, h Hook) {
	bulk := int32(r.Queues - 1)
	p.Label(toBulk)
	p.Add(
		asm.Mov.Reg(asm.R0, flow),
		asm.Mul.Imm(asm.R0, bulk),
		asm.RSh.Imm(asm.R0, 32),
		asm.Ja.Label("done"),
	)
	p.Label(toFirst)
	p.Add(
		asm.Mov.Imm(asm.R0, 0),
		asm.Ja.Label("done"),
	)
	p.Label(toLatency)
	p.Add(asm.Mov.Imm(asm.R0, bulk))
	p.Label("done")
	if h == Ingress {
		p.Add(
			asm.Mov.Reg(asm.R1, ctx),
			asm.Mov.Reg(asm.R2, asm.R0),
			asm.Add.Imm(asm.R2, int32(r.Queues)), // a hash of 0 would be none
			asm.FnSetHash.Call(),
			asm.Mov.Imm(asm.R0, -1), // TC_ACT_UNSPEC: other programs may decide too
		)
	}
	p.Add(asm.Return())
}

// program is an eBPF program under construction.
type program struct{ frameasm.Program }

// has makes dst 1 if point is in s, and 0 otherwise.
func (p *program) has(dst asm.Register, s DSCPSet, point asm.Register) {
	p.Add(
		asm.LoadImm(dst, int64(s), asm.DWord),
		asm.RSh.Reg(dst, point),
		asm.And.Imm(dst, 1),
	)
}

// ifLonger jumps to label if the frame has more than limit bytes. The kernel's length is that of
// the data, which may begin behind the Ethernet header.
func (p *program) ifLonger(limit int, label string) {
	p.Add(
		asm.LoadMem(asm.R1, ctx, frameasm.Len, asm.Word),
		asm.LoadMem(asm.R2, asm.RFP, begin, asm.DWord),
		asm.Sub.Reg(asm.R1, asm.R2),
		asm.JSGT.Imm(asm.R1, int32(limit-14), label),
	)
}

// lookup looks the flow up in the table. R0 then points to the time at which the flow last
// sent a frame as bulk, or is 0 if the flow is not there.
func (p *program) lookup(flows int) {
	p.Add(
		asm.StoreMem(asm.RFP, flowKey, flow, asm.Word),
		asm.LoadMapPtr(asm.R1, flows),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, flowKey),
		asm.FnMapLookupElem.Call(),
	)
}
