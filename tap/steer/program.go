package steer

import (
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// The program's registers, kept across calls of the kernel's functions.
const (
	ctx    = asm.R6 // struct __sk_buff
	offset = asm.R7 // of what is looked at, from where the frame's data begins
	flow   = asm.R8 // hash of the flow; before that, EtherType
	marked = asm.R9 // whether the DSCP is a listed one
)

// Offsets in the program's stack.
const (
	header  = -64 // 40 bytes: Ethernet, or IP
	piece   = -8  // 8 bytes: VLAN tag, ports, type of ICMP
	total   = -72 // length of the IP packet
	proto   = -80 // what follows the IP header
	flowKey = -84 // key in the table of flows
	instant = -96 // value there
)

// Offsets in struct __sk_buff of <linux/bpf.h>.
const (
	skbLen      = 0
	skbProtocol = 16
)

// golden is 2^64 divided by the golden ratio, made odd: a product's upper half
// mixes all bits of the lower half of the other factor.
const golden = -0x61c8864680b583eb

// The labels of the verdicts.
const (
	toLatency = "latency" // the last queue
	toBulk    = "bulk"    // one of the others, by hash
	toFirst   = "first"   // what has no flow
)

// assemble returns the rule as a program. Queue numbers are its result; at the
// ingress of a macvtap, which has no hook for them, they become the hash of the
// frame, of which the macvtap takes the remainder.
func (r Rule) assemble(h Hook, flows int) asm.Instructions {
	var p program
	p.add(asm.Mov.Reg(ctx, asm.R1))
	if h == Fanout {
		// The data of a frame that came in begins behind the Ethernet header.
		p.add(
			asm.LoadMem(flow, ctx, skbProtocol, asm.Word),
			asm.HostTo(asm.BE, flow, asm.Half),
			asm.Mov.Imm(offset, 0),
		)
	} else {
		p.add(asm.Mov.Imm(offset, 0))
		p.load(header, 14, toFirst)
		p.half(flow, header+12)
		p.add(asm.Mov.Imm(offset, 14))
	}
	for _, l := range []struct{ tag, done string }{{"tag1", "untagged1"}, {"tag2", "untagged2"}} {
		p.add(
			asm.JEq.Imm(flow, unix.ETH_P_8021Q, l.tag),
			asm.JNE.Imm(flow, unix.ETH_P_8021AD, l.done),
		)
		p.label(l.tag)
		p.load(piece, 4, toFirst)
		p.half(flow, piece+2)
		p.add(asm.Add.Imm(offset, 4))
		p.label(l.done)
	}
	p.add(
		asm.JEq.Imm(flow, unix.ETH_P_IP, "ipv4"),
		asm.JEq.Imm(flow, unix.ETH_P_IPV6, "ipv6"),
		asm.JNE.Imm(flow, unix.ETH_P_ARP, toFirst),
	)
	p.ifLonger(r.limit(h), toFirst)
	p.add(asm.Ja.Label(toLatency))
	r.ipv4(&p)
	r.ipv6(&p)
	r.transport(&p, h)
	r.verdict(&p, h, flows)
	r.queue(&p, h)
	return p.instructions
}

// limit is Limit for the length that a program at the hook sees.
func (r Rule) limit(h Hook) int {
	if h == Fanout {
		return r.Limit - 14
	}
	return r.Limit
}

// ipv4 reads the header at offset.
func (r Rule) ipv4(p *program) {
	p.label("ipv4")
	p.load(header, 20, toFirst)
	p.add(
		asm.LoadMem(flow, asm.RFP, header+12, asm.Word),
		asm.LoadMem(asm.R1, asm.RFP, header+16, asm.Word),
		asm.Xor.Reg(flow, asm.R1),
		asm.LoadMem(asm.R1, asm.RFP, header+9, asm.Byte),
		asm.StoreMem(asm.RFP, proto, asm.R1, asm.DWord),
	)
	p.half(asm.R1, header+2)
	p.add(
		asm.StoreMem(asm.RFP, total, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.RFP, header+1, asm.Byte),
		asm.RSh.Imm(asm.R1, 2),
	)
	p.has(marked, r.DSCP, asm.R1)
	// Fragments: all of a packet's are one flow, whether they have ports or not.
	p.half(asm.R1, header+6)
	p.add(
		asm.And.Imm(asm.R1, 0x3fff),
		asm.JNE.Imm(asm.R1, 0, "hashed"),
		asm.LoadMem(asm.R1, asm.RFP, header, asm.Byte),
		asm.And.Imm(asm.R1, 15),
		asm.LSh.Imm(asm.R1, 2),
		asm.Add.Reg(offset, asm.R1),
		asm.Ja.Label("transport"),
	)
}

// ipv6 reads the header at offset. Extension headers are not followed: the flow
// is then what has the same addresses.
func (r Rule) ipv6(p *program) {
	p.label("ipv6")
	p.load(header, 40, toFirst)
	p.add(
		asm.LoadMem(flow, asm.RFP, header+8, asm.DWord),
		asm.LoadMem(asm.R1, asm.RFP, header+24, asm.DWord),
		asm.Xor.Reg(flow, asm.R1),
		asm.LoadImm(asm.R1, golden, asm.DWord),
		asm.Mul.Reg(flow, asm.R1),
		asm.LoadMem(asm.R1, asm.RFP, header+16, asm.DWord),
		asm.Xor.Reg(flow, asm.R1),
		asm.LoadMem(asm.R1, asm.RFP, header+32, asm.DWord),
		asm.Xor.Reg(flow, asm.R1),
		asm.LoadMem(asm.R1, asm.RFP, header+6, asm.Byte),
		asm.StoreMem(asm.RFP, proto, asm.R1, asm.DWord),
	)
	p.half(asm.R1, header+4)
	p.add(
		asm.Add.Imm(asm.R1, 40),
		asm.StoreMem(asm.RFP, total, asm.R1, asm.DWord),
	)
	p.half(asm.R1, header)
	p.add(
		asm.RSh.Imm(asm.R1, 6),
		asm.And.Imm(asm.R1, 63),
	)
	p.has(marked, r.DSCP, asm.R1)
	p.add(asm.Add.Imm(offset, 40))
}

// Types of ICMP and ICMPv6.
const (
	echoReply, echoRequest           = 0, 8
	echoRequest6, echoReply6         = 128, 129
	routerSolicitation, redirect     = 133, 137 // and neighbour discovery in between
	protoICMP, protoICMP6, protoSCTP = unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6, unix.IPPROTO_SCTP
)

// transport reads ports into the hash, and what kind of ICMP it is.
func (r Rule) transport(p *program, h Hook) {
	p.label("transport")
	p.add(
		asm.LoadMem(asm.R1, asm.RFP, proto, asm.DWord),
		asm.JEq.Imm(asm.R1, unix.IPPROTO_TCP, "ports"),
		asm.JEq.Imm(asm.R1, unix.IPPROTO_UDP, "ports"),
		asm.JEq.Imm(asm.R1, protoSCTP, "ports"),
		asm.JEq.Imm(asm.R1, protoICMP, "icmp"),
		asm.JNE.Imm(asm.R1, protoICMP6, "hashed"),
	)
	p.load(piece, 1, "hashed")
	p.add(
		asm.LoadMem(asm.R1, asm.RFP, piece, asm.Byte),
		asm.JEq.Imm(asm.R1, echoRequest6, "control"),
		asm.JEq.Imm(asm.R1, echoReply6, "control"),
		asm.JLT.Imm(asm.R1, routerSolicitation, "hashed"),
		asm.JGT.Imm(asm.R1, redirect, "hashed"),
		asm.Ja.Label("control"),
	)
	p.label("icmp")
	p.load(piece, 1, "hashed")
	p.add(
		asm.LoadMem(asm.R1, asm.RFP, piece, asm.Byte),
		asm.JEq.Imm(asm.R1, echoRequest, "control"),
		asm.JNE.Imm(asm.R1, echoReply, "hashed"),
	)
	p.label("control")
	p.ifLonger(r.limit(h), "hashed")
	p.add(asm.Ja.Label(toLatency))
	p.label("ports")
	p.load(piece, 4, "hashed")
	p.add(
		asm.LoadMem(asm.R1, asm.RFP, piece, asm.Half),
		asm.LoadMem(asm.R2, asm.RFP, piece+2, asm.Half),
		asm.Xor.Reg(asm.R1, asm.R2),
		asm.LSh.Imm(asm.R1, 32),
		asm.Xor.Reg(flow, asm.R1),
	)
	p.label("hashed")
	p.add(
		asm.LoadMem(asm.R1, asm.RFP, proto, asm.DWord),
		asm.LSh.Imm(asm.R1, 48),
		asm.Xor.Reg(flow, asm.R1),
		asm.LoadImm(asm.R1, golden, asm.DWord),
		asm.Mul.Reg(flow, asm.R1),
		asm.RSh.Imm(flow, 32),
	)
}

// verdict decides by the class of the frame and the past of its flow.
func (r Rule) verdict(p *program, h Hook, flows int) {
	if r.Size == 0 {
		p.add(asm.JEq.Imm(marked, 0, toBulk))
	} else {
		p.add(
			asm.JNE.Imm(marked, 0, "sensitive"),
			asm.LoadMem(asm.R1, asm.RFP, total, asm.DWord),
			asm.JGT.Imm(asm.R1, int32(r.Size), "long"),
		)
		p.label("sensitive")
	}
	p.ifLonger(r.limit(h), "long")
	p.lookup(flows)
	p.add(
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
	p.label("long")
	p.lookup(flows)
	p.add(
		asm.Mov.Reg(offset, asm.R0),
		asm.FnKtimeGetNs.Call(),
		asm.JEq.Imm(offset, 0, "unknown"),
		asm.StoreMem(offset, 0, asm.R0, asm.DWord),
		asm.Ja.Label(toBulk),
	)
	p.label("unknown")
	p.add(
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
	p.label(toBulk)
	p.add(
		asm.Mov.Reg(asm.R0, flow),
		asm.Mul.Imm(asm.R0, bulk),
		asm.RSh.Imm(asm.R0, 32),
		asm.Ja.Label("done"),
	)
	p.label(toFirst)
	p.add(
		asm.Mov.Imm(asm.R0, 0),
		asm.Ja.Label("done"),
	)
	p.label(toLatency)
	p.add(asm.Mov.Imm(asm.R0, bulk))
	p.label("done")
	if h == Ingress {
		p.add(
			asm.Mov.Reg(asm.R1, ctx),
			asm.Mov.Reg(asm.R2, asm.R0),
			asm.Add.Imm(asm.R2, int32(r.Queues)), // 0 would be no hash
			asm.FnSetHash.Call(),
			asm.Mov.Imm(asm.R0, -1), // TC_ACT_UNSPEC: others may have a say
		)
	}
	p.add(asm.Return())
}

// program is one that is being put together.
type program struct {
	instructions asm.Instructions
	next         string // label of the next instruction
}

func (p *program) add(list ...asm.Instruction) {
	if p.next != "" {
		list[0] = list[0].WithSymbol(p.next)
		p.next = ""
	}
	p.instructions = append(p.instructions, list...)
}

// label names the next instruction.
func (p *program) label(name string) { p.next = name }

// load copies n bytes of the frame, from offset on, to the stack, or goes to
// label if there are not so many.
func (p *program) load(stack int32, n int32, label string) {
	p.add(
		asm.Mov.Reg(asm.R1, ctx),
		asm.Mov.Reg(asm.R2, offset),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, stack),
		asm.Mov.Imm(asm.R4, n),
		asm.FnSkbLoadBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, label),
	)
}

// half loads two bytes of the stack that are in network order.
func (p *program) half(dst asm.Register, stack int16) {
	p.add(
		asm.LoadMem(dst, asm.RFP, stack, asm.Half),
		asm.HostTo(asm.BE, dst, asm.Half),
	)
}

// has makes dst 1 if point is in s, and 0 otherwise.
func (p *program) has(dst asm.Register, s DSCPSet, point asm.Register) {
	p.add(
		asm.LoadImm(dst, int64(s), asm.DWord),
		asm.RSh.Reg(dst, point),
		asm.And.Imm(dst, 1),
	)
}

// ifLonger goes to label if the frame has more than limit bytes.
func (p *program) ifLonger(limit int, label string) {
	p.add(
		asm.LoadMem(asm.R1, ctx, skbLen, asm.Word),
		asm.JGT.Imm(asm.R1, int32(limit), label),
	)
}

// lookup finds the flow in the table: R0 points to when it sent something last
// while it was bulk, or is 0.
func (p *program) lookup(flows int) {
	p.add(
		asm.StoreMem(asm.RFP, flowKey, flow, asm.Word),
		asm.LoadMapPtr(asm.R1, flows),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, flowKey),
		asm.FnMapLookupElem.Call(),
	)
}
