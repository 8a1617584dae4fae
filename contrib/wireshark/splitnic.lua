-- Wireshark dissector for what a splitnic host and I/O unit say to each other
-- over RoCE or InfiniBand: control messages, SendData, and the immediate data of
-- RDMA writes. docs/protocol.md describes the bytes, README.md the use.
--
-- It looks at the payload that Wireshark's own InfiniBand dissector leaves over.
-- Queue pairs are not announced in the clear, so messages are recognised by
-- their header and length, and transfer indications by the length of their
-- write; the preference "Queue pairs" names those to look at instead. Nor does
-- anything say that a session is encrypted: a preference does.

local splitnic = Proto("splitnic", "splitnic")

local HEADER = 12 -- bytes of the header of a message
local SEND_OVERHEAD = 16 -- bytes of SendData before the data
local MAX_CONTROL = 4096
local MAX_FRAME = 65563
local TAG = 16 -- bytes behind what is encrypted
local MAX_PACKETS = 257 -- of a message, with the smallest path MTU
local NET_HDR = 10 -- bytes of a virtio_net_hdr without num_buffers
local MIN_FRAME = NET_HDR + 14
local PACK, PACK_HEADER = 0x80, 4
local TRANSACTIONS_AT, TRANSACTION, MAX_TRANSACTIONS = 28, 32, 64 -- of a DirectedRequest

local functions = {
	[1] = "BufferRecvPool",
	[2] = "BufferRecvPoolGet",
	[3] = "BufferRecvPoolUpdate",
	[4] = "BufferPoolFlushRequest",
	[5] = "BufferPoolFlushReply",
	[6] = "SendData",
	[7] = "BufferRDMAIndicate",
	[8] = "CfgUtilRequest",
	[9] = "CfgUtilReply",
	[10] = "DirectedRequest",
	[11] = "DirectedReply",
	[12] = "DirectedConnect",
	[13] = "DirectedConnected",
}

local operations = { [1] = "read", [2] = "write", [3] = "exchange" }

local directed_statuses = {
	[0] = "ok",
	[1] = "denied by the owner",
	[2] = "the list is not valid",
	[3] = "memory of another platform",
	[4] = "access refused",
	[5] = "the unit with the memory cannot be reached",
	[6] = "failed",
	[7] = "the I/O device has no such operation",
}

local element_types = {
	"attributes", "chain pointer", "fragment", "immediate data", "platform identifier", "fragment without identifier",
}

local requests = {
	[1] = "MAC",
	[2] = "MTU",
	[3] = "link state",
	[4] = "keep-alive",
	[5] = "offloads",
	[6] = "receive filter",
	[7] = "VLANs",
	[8] = "read statistics",
	[9] = "clear statistics",
	[10] = "reset",
	[11] = "sent",
	[12] = "binding",
	[13] = "pool keys",
	[14] = "markers have arrived",
	[15] = "refusal",
	[16] = "path",
}

local statuses = {
	[0] = "ok",
	[1] = "unsupported",
	[2] = "invalid",
	[3] = "denied",
	[4] = "failed",
}

local gso_types = {
	[0] = "none",
	[1] = "TCP over IPv4",
	[4] = "TCP over IPv6",
	[5] = "UDP",
}

local counters = {
	"rx_frames", "rx_bytes", "tx_frames", "tx_bytes", "rx_dropped", "rx_too_long",
	"rx_invalid", "rx_filtered", "tx_dropped", "tx_source", "tx_vlan",
}

local offloads = { "csum", "tso4", "tso6", "tsoecn", "uso" } -- from bit 0

local f = {
	func = ProtoField.uint16("splitnic.function", "Function", base.DEC, functions),
	version = ProtoField.uint16("splitnic.version", "Version"),
	transaction = ProtoField.uint64("splitnic.transaction", "Transaction context", base.HEX),

	pool = ProtoField.uint32("splitnic.pool", "Pool reference"),
	elements = ProtoField.uint32("splitnic.elements", "Elements"),
	element_size = ProtoField.uint32("splitnic.element_size", "Element size"),
	rkey = ProtoField.uint32("splitnic.rkey", "Memory handle", base.HEX),
	address = ProtoField.uint64("splitnic.address", "Address", base.HEX),
	own = ProtoField.uint64("splitnic.own", "The lender's own", base.HEX),
	invalidate = ProtoField.bool("splitnic.invalidate", "The initiator invalidates the key", 32, { "yes", "no" }, 0x10000),
	key_follows = ProtoField.bool("splitnic.key_follows", "The key follows on the data channel", 32, { "yes", "no" }, 0x20000),
	channel = ProtoField.uint32("splitnic.channel", "Data channel"),
	count = ProtoField.uint32("splitnic.count", "Elements returned"),
	element = ProtoField.uint32("splitnic.element", "Element"),
	length = ProtoField.uint32("splitnic.length", "Length"),
	padding = ProtoField.uint16("splitnic.padding", "Padding", base.HEX),
	give_back = ProtoField.bool("splitnic.give_back", "Gives back the receiver's pool", 32, { "yes", "no: takes back its own" }, 0x80000000),
	flushed = ProtoField.uint32("splitnic.flushed", "Pool reference", base.DEC, nil, 0x7fffffff),

	seq = ProtoField.uint64("splitnic.seq", "Sequence number"),
	size = ProtoField.uint32("splitnic.size", "Data size"),
	data = ProtoField.bytes("splitnic.data", "Data"),
	encrypted = ProtoField.bytes("splitnic.encrypted", "Encrypted"),

	request = ProtoField.uint32("splitnic.request", "Request type", base.DEC, requests),
	status = ProtoField.uint32("splitnic.status", "Status", base.DEC, statuses),
	mac = ProtoField.ether("splitnic.mac", "MAC address"),
	mtu = ProtoField.uint32("splitnic.mtu", "MTU"),
	up = ProtoField.bool("splitnic.link.up", "Up", 32, nil, 0x1),
	speed = ProtoField.uint32("splitnic.link.speed", "Speed in Mbit/s"),
	promisc = ProtoField.bool("splitnic.filter.promisc", "Promiscuous", 32, nil, 0x1),
	allmulti = ProtoField.bool("splitnic.filter.allmulti", "All multicast", 32, nil, 0x2),
	unicasts = ProtoField.uint16("splitnic.filter.unicasts", "Unicast addresses"),
	multicasts = ProtoField.uint16("splitnic.filter.multicasts", "Multicast addresses"),
	unicast = ProtoField.ether("splitnic.filter.unicast", "Unicast address"),
	multicast = ProtoField.ether("splitnic.filter.multicast", "Multicast address"),
	vlan = ProtoField.uint16("splitnic.vlan", "VLAN"),
	next = ProtoField.uint64("splitnic.next", "Next sequence number"),
	proof = ProtoField.bytes("splitnic.proof", "Proof"),

	imm = ProtoField.uint32("splitnic.imm", "Transfer indication", base.HEX),
	imm_pool = ProtoField.uint32("splitnic.imm.pool", "Pool reference", base.DEC, nil, 0xff000000),
	imm_element = ProtoField.uint32("splitnic.imm.element", "Element", base.DEC, nil, 0x00ff0000),
	imm_length = ProtoField.uint32("splitnic.imm.length", "Length", base.DEC, nil, 0x0000ffff),

	operation = ProtoField.uint32("splitnic.directed.operation", "Operation", base.DEC, operations),
	io_device = ProtoField.uint32("splitnic.directed.device", "I/O device"),
	offset = ProtoField.uint64("splitnic.directed.offset", "Offset", base.HEX),
	requester = ProtoField.uint64("splitnic.directed.requester", "Requester", base.HEX),
	directed_status = ProtoField.uint32("splitnic.directed.status", "Status", base.DEC, directed_statuses),
	bytes = ProtoField.uint64("splitnic.directed.bytes", "Bytes"),
	transactions = ProtoField.uint32("splitnic.directed.transactions", "Transactions"),
	done = ProtoField.uint32("splitnic.directed.done", "Transactions carried out"),
	source_buffers = ProtoField.uint16("splitnic.directed.source.buffers", "Source buffers"),
	source_bytes = ProtoField.uint64("splitnic.directed.source.bytes", "Bytes of source data"),
	result_buffers = ProtoField.uint16("splitnic.directed.result.buffers", "Result buffers"),
	result_bytes = ProtoField.uint64("splitnic.directed.result.bytes", "Bytes of results"),
	from = ProtoField.uint64("splitnic.directed.from", "From", base.HEX),
	to = ProtoField.uint64("splitnic.directed.to", "To", base.HEX),
	qpn = ProtoField.uint32("splitnic.directed.qpn", "Queue pair"),
	psn = ProtoField.uint32("splitnic.directed.psn", "Packet sequence number", base.HEX),
	lid = ProtoField.uint16("splitnic.directed.lid", "LID"),
	path_mtu = ProtoField.uint16("splitnic.directed.mtu", "Path MTU"),
	gid = ProtoField.bytes("splitnic.directed.gid", "GID"),
	reads = ProtoField.uint16("splitnic.directed.reads", "RDMA reads at a time"),

	element_type = ProtoField.uint32("splitnic.list.type", "Type", base.DEC, element_types, 0x3f000000),
	last = ProtoField.bool("splitnic.list.last", "Last of the sequence", 32, nil, 0x80000000),
	end_of_buffer = ProtoField.bool("splitnic.list.end_of_buffer", "Last of the buffer", 32, nil, 0x40000000),
	list_elements = ProtoField.uint32("splitnic.list.elements", "Elements"),
	list_buffers = ProtoField.uint32("splitnic.list.buffers", "Buffers"),
	list_bytes = ProtoField.uint64("splitnic.list.bytes", "Bytes"),
	address_bits = ProtoField.uint16("splitnic.list.address_bits", "Bits of an address"),
	page_shift = ProtoField.uint16("splitnic.list.page_shift", "Page frame, as a power of two"),
	platform = ProtoField.uint64("splitnic.list.platform", "Platform identifier", base.HEX),

	pack = ProtoField.uint16("splitnic.pack", "Frames in one transfer"),
	packed = ProtoField.uint16("splitnic.pack.length", "Length of a frame"),

	flags = ProtoField.uint8("splitnic.frame.flags", "Flags", base.HEX),
	needs_csum = ProtoField.bool("splitnic.frame.needs_csum", "Checksum to be finished", 8, nil, 0x1),
	data_valid = ProtoField.bool("splitnic.frame.data_valid", "Checksum verified", 8, nil, 0x2),
	gso_type = ProtoField.uint8("splitnic.frame.gso_type", "GSO type", base.DEC, gso_types, 0x7f),
	ecn = ProtoField.bool("splitnic.frame.ecn", "ECN", 8, nil, 0x80),
	hdr_len = ProtoField.uint16("splitnic.frame.hdr_len", "Header length"),
	gso_size = ProtoField.uint16("splitnic.frame.gso_size", "GSO size"),
	csum_start = ProtoField.uint16("splitnic.frame.csum_start", "Checksum start"),
	csum_offset = ProtoField.uint16("splitnic.frame.csum_offset", "Checksum offset"),
}
local all = {}
for _, field in pairs(f) do
	all[#all + 1] = field
end
local f_stat, f_offload = {}, {}
for i, name in ipairs(counters) do
	f_stat[i] = ProtoField.uint64("splitnic.stat." .. name, name)
	all[#all + 1] = f_stat[i]
end
for i, name in ipairs(offloads) do
	f_offload[i] = ProtoField.bool("splitnic.offload." .. name, name, 32, nil, 2 ^ (i - 1))
	all[#all + 1] = f_offload[i]
end
splitnic.fields = all

local malformed = ProtoExpert.new("splitnic.malformed", "Breaks the protocol", expert.group.MALFORMED, expert.severity.ERROR)
splitnic.experts = { malformed }

splitnic.prefs.qps = Pref.range("Queue pairs", "", "Destination queue pairs of splitnic. Empty: recognise messages by their content", 0xffffff)
splitnic.prefs.immediate = Pref.bool("Immediate data of RDMA writes", true, "Show transfer indications")
splitnic.prefs.frames = Pref.bool("Ethernet frames", true, "Dissect the Ethernet frames in SendData and in writes of one packet")

splitnic.prefs.encrypted = Pref.bool("Sessions are encrypted", false, "Do not decode what encrypted sessions encrypt")

local ib_opcode = Field.new("infiniband.bth.opcode")
local ib_qp = Field.new("infiniband.bth.destqp")
local ib_psn = Field.new("infiniband.bth.psn")
local ib_pad = Field.new("infiniband.bth.padcnt")
local ib_imm = Field.new("infiniband.immdt")
local ib_dmalen = Field.new("infiniband.reth.dmalen")

local ethernet = Dissector.get("eth_withoutfcs")

-- Opcodes of the base transport header, by their low 5 bits: those of RC (000)
-- and UC (001) agree (InfiniBand specification, volume 1, §9.2.1).
local SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY = 0, 1, 2, 4
local WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST_IMM, WRITE_ONLY_IMM = 6, 7, 9, 11

-- Packets that need others to mean something: by flow and packet sequence number
-- a list of {number, kind, what}. Wireshark may look at packets several times and
-- in any order, and not every time are there the fields that say what they are.
local parts = {}

function splitnic.init()
	parts = {}
end

local function remember(flow, psn, number, kind, what)
	local of = parts[flow] or {}
	parts[flow] = of
	of[psn] = of[psn] or {}
	for _, p in ipairs(of[psn]) do
		if p.number == number then
			return
		end
	end
	table.insert(of[psn], { number = number, kind = kind, what = what })
end

-- preceding returns what was remembered of the packets of a message before its
-- last one, from the first on; nil if one is not known.
local function preceding(flow, psn, number, first, middle)
	local found = {}
	while #found <= MAX_PACKETS do
		psn = (psn - 1) % 0x1000000
		local latest
		for _, p in ipairs(parts[flow] and parts[flow][psn] or {}) do
			if p.number < number and (not latest or p.number > latest.number) then
				latest = p
			end
		end
		if not latest or latest.kind ~= first and latest.kind ~= middle then
			return nil
		end
		table.insert(found, 1, latest.what)
		if latest.kind == first then
			return found
		end
	end
end

local function chosen(qp)
	local qps = tostring(splitnic.prefs.qps)
	if qps == "" then
		return nil
	end
	for low, high in qps:gmatch("(%d+)%-?(%d*)") do
		if qp >= tonumber(low) and qp <= (tonumber(high) or tonumber(low)) then
			return true
		end
	end
	return false
end

-- path reports whether this is the message that is as long as the path MTU.
local function path(tvb)
	return tvb:len() >= 20 and tvb(0, 2):uint() == 8 and tvb(12, 4):uint() == 16 and tvb(16, 4):uint() == 0
end

-- list_at returns where the list of a DirectedRequest begins.
local function list_at(tvb) return TRANSACTIONS_AT + tvb(16, 4):uint() * TRANSACTION end

-- directed_request reports whether this can be a DirectedRequest of n bytes, with a list or without.
local function directed_request(tvb, n)
	if tvb:len() < TRANSACTIONS_AT or tvb(16, 4):uint() == 0 or tvb(16, 4):uint() > MAX_TRANSACTIONS then
		return false
	end
	local at = list_at(tvb)
	if n == at then
		return tvb:len() == at and operations[tvb(TRANSACTIONS_AT, 4):uint()] ~= nil
	end
	return n >= at + 24 + 12 and n % 4 == 0 and tvb:len() >= at + 4 and tvb(at, 4):uint() == 0x01000018
end

-- plausible reports whether a message of n bytes in all can have this header.
local function plausible(tvb, n)
	if tvb:len() < HEADER or tvb(2, 2):uint() ~= 1 then
		return false
	end
	local func, body = tvb(0, 2):uint(), n - HEADER
	if func == 6 then
		local most = MAX_FRAME + (splitnic.prefs.encrypted and TAG or 0)
		return n > SEND_OVERHEAD and n <= SEND_OVERHEAD + most and tvb:len() >= SEND_OVERHEAD
			and tvb(HEADER, 4):uint() == n - SEND_OVERHEAD
	end
	if n > MAX_CONTROL then
		return false
	end
	if func == 1 then
		return body > 0 and body % 32 == 0
	elseif func == 2 then
		return body == 12
	elseif func == 3 then
		return body >= 12 and body % 4 == 0
	elseif func == 4 then
		return body > 0 and body % 4 == 0
	elseif func == 5 then
		return body == 0
	elseif func == 7 then
		return body > 0 and body % 12 == 0
	elseif func == 8 then
		return body >= 8 and tvb:len() >= 20 and (tvb(16, 4):uint() == body - 8 or path(tvb))
	elseif func == 9 then
		return body >= 12 and tvb:len() >= 24 and tvb(20, 4):uint() == body - 12
	elseif func == 10 then
		return directed_request(tvb, n)
	elseif func == 11 then
		return body == 16
	elseif func == 12 then
		return body == 56
	elseif func == 13 then
		return body == 36
	end
	return false
end

-- frame adds a virtio_net_hdr and the Ethernet frame behind it.
local function frame(tvb, pinfo, tree, root)
	if tvb:len() < MIN_FRAME then
		tree:add_proto_expert_info(malformed, "Frame of less than " .. MIN_FRAME .. " bytes")
		return
	end
	local h = tree:add(tvb(0, NET_HDR), "virtio_net_hdr")
	local flags = h:add(f.flags, tvb(0, 1))
	flags:add(f.needs_csum, tvb(0, 1))
	flags:add(f.data_valid, tvb(0, 1))
	h:add(f.gso_type, tvb(1, 1))
	h:add(f.ecn, tvb(1, 1))
	h:add_le(f.hdr_len, tvb(2, 2))
	h:add_le(f.gso_size, tvb(4, 2))
	h:add_le(f.csum_start, tvb(6, 2))
	h:add_le(f.csum_offset, tvb(8, 2))
	if splitnic.prefs.frames then
		ethernet:call(tvb(NET_HDR):tvb(), pinfo, root)
	end
end

-- frames adds a frame or, behind a flag that no virtio_net_hdr has, a pack of
-- them, as far as it lies in this packet.
local function frames(tvb, pinfo, tree, root)
	if splitnic.prefs.encrypted then
		tree:add(f.encrypted, tvb())
		return
	end
	if tvb:len() < PACK_HEADER or tvb(0, 1):uint() ~= PACK then
		frame(tvb, pinfo, tree, root)
		return
	end
	local at = PACK_HEADER
	tree:add(f.pack, tvb(2, 2))
	for _ = 1, tvb(2, 2):uint() do
		if at + 2 > tvb:len() then
			return
		end
		local n = tvb(at, 2):uint()
		local t = tree:add(f.packed, tvb(at, 2))
		if n == 0 or at + 2 + n > tvb:len() then
			return
		end
		frame(tvb(at + 2, n):tvb(), pinfo, t, root)
		at = at + 2 + n
	end
end

local function recv_pool(tvb, tree)
	for at = HEADER, tvb:len() - 32, 32 do
		local t = tree:add(tvb(at, 32), string.format("Pool %d: %d elements of %d bytes for data channel %d",
			tvb(at, 4):uint(), tvb(at + 4, 4):uint(), tvb(at + 8, 4):uint(), tvb(at + 30, 2):uint()))
		t:add(f.pool, tvb(at, 4))
		t:add(f.elements, tvb(at + 4, 4))
		t:add(f.element_size, tvb(at + 8, 4))
		t:add(f.rkey, tvb(at + 12, 4))
		t:add(f.address, tvb(at + 16, 8))
		t:add(f.own, tvb(at + 24, 6), UInt64(tvb(at + 26, 4):uint(), tvb(at + 24, 2):uint()))
		t:add(f.invalidate, tvb(at + 28, 4))
		t:add(f.key_follows, tvb(at + 28, 4))
		t:add(f.channel, tvb(at + 30, 2))
	end
end

local function pool_get(tvb, tree)
	tree:add(f.element_size, tvb(12, 4))
	tree:add(f.elements, tvb(16, 4))
	tree:add(f.channel, tvb(20, 4))
end

local function pool_update(tvb, tree)
	local at = HEADER
	while at < tvb:len() do
		local left = tvb:len() - at
		local n = left >= 8 and tvb(at + 4, 4):uint() or 0
		if n == 0 or n > 65536 or left < 8 + 2 * n + 2 * (n % 2) then
			tree:add_tvb_expert_info(malformed, tvb(at), "Ends within a pool, or returns nothing")
			return
		end
		local size = 8 + 2 * n + 2 * (n % 2)
		local t = tree:add(tvb(at, size), string.format("Pool %d: %d elements", tvb(at, 4):uint(), n))
		t:add(f.pool, tvb(at, 4))
		t:add(f.count, tvb(at + 4, 4))
		for i = at + 8, at + 6 + 2 * n, 2 do
			t:add(f.element, tvb(i, 2))
		end
		if n % 2 == 1 then
			local pad = tvb(at + size - 2, 2)
			local p = t:add(f.padding, pad)
			if pad:uint() ~= 0 then
				p:add_proto_expert_info(malformed, "Padding is not zero")
			end
		end
		at = at + size
	end
end

local function flush(tvb, tree)
	for at = HEADER, tvb:len() - 4, 4 do
		tree:add(f.give_back, tvb(at, 4))
		tree:add(f.flushed, tvb(at, 4))
	end
end

local function indicate(tvb, tree)
	for at = HEADER, tvb:len() - 12, 12 do
		local t = tree:add(tvb(at, 12), string.format("Pool %d, element %d: %d bytes",
			tvb(at, 4):uint(), tvb(at + 4, 4):uint(), tvb(at + 8, 4):uint()))
		t:add(f.pool, tvb(at, 4))
		t:add(f.element, tvb(at + 4, 4))
		t:add(f.length, tvb(at + 8, 4))
	end
end

-- One end of a connection of directed I/O.
local function directed_end(tvb, tree)
	tree:add(f.qpn, tvb(0, 4))
	tree:add(f.psn, tvb(4, 4))
	tree:add(f.lid, tvb(8, 2))
	tree:add(f.path_mtu, tvb(10, 2))
	tree:add(f.gid, tvb(12, 16))
	tree:add(f.reads, tvb(28, 2))
end

-- One transaction of a request.
local function transaction(tvb, at, tree, name)
	local t = tree:add(tvb(at, TRANSACTION), "Transaction: " .. name)
	t:add(f.operation, tvb(at, 4))
	t:add(f.source_buffers, tvb(at + 4, 2))
	t:add(f.result_buffers, tvb(at + 6, 2))
	t:add(f.offset, tvb(at + 8, 8))
	t:add(f.source_bytes, tvb(at + 16, 8))
	t:add(f.result_bytes, tvb(at + 24, 8))
end

-- The elements of a scatter-gather list, as far as they are in the message.
local function list(tvb, tree)
	local at, last = 0, false
	while not last do
		local left = tvb:len() - at
		local word = left >= 4 and tvb(at, 4):uint() or 0
		local size, kind = word % 0x1000000, math.floor(word / 0x1000000) % 0x40
		if size < 8 or size > left or (kind == 1 and size ~= 24) or ((kind == 2 or kind == 3) and size ~= 28)
			or (kind == 5 and size ~= 12) or (kind == 6 and size ~= 20) then
			tree:add_tvb_expert_info(malformed, tvb(math.min(at, tvb:len() - 1)), "Ends within an element")
			return
		end
		last = word >= 0x80000000
		local t = tree:add(tvb(at, size), "Element: " .. (element_types[kind] or ("type " .. kind)))
		t:add(f.element_type, tvb(at, 4))
		t:add(f.last, tvb(at, 4))
		t:add(f.end_of_buffer, tvb(at, 4))
		if kind == 1 then
			t:add(f.address_bits, tvb(at + 4, 2))
			t:add(f.page_shift, tvb(at + 6, 2))
			t:add(f.list_elements, tvb(at + 8, 4))
			t:add(f.list_buffers, tvb(at + 12, 4))
			t:add(f.list_bytes, tvb(at + 16, 8))
		elseif kind == 2 or kind == 3 then
			t:add(f.rkey, tvb(at + 4, 4))
			t:add(f.platform, tvb(at + 8, 8))
			t:add(f.address, tvb(at + 16, 8))
			t:add(f.length, tvb(at + 24, 4))
		elseif kind == 5 then
			t:add(f.platform, tvb(at + 4, 8))
		elseif kind == 6 then
			t:add(f.rkey, tvb(at + 4, 4))
			t:add(f.address, tvb(at + 8, 8))
			t:add(f.length, tvb(at + 16, 4))
		elseif kind == 4 and tvb(at + 4, 4):uint() <= size - 8 then
			t:add(f.size, tvb(at + 4, 4))
			t:add(f.data, tvb(at + 8, tvb(at + 4, 4):uint()))
		else
			t:add_proto_expert_info(malformed, "No element of this form")
		end
		at = at + size
	end
	if at < tvb:len() then
		tree:add_tvb_expert_info(malformed, tvb(at), "Bytes after the last element")
	end
end

-- directed adds a message of directed I/O and returns what to say of it in a line.
local function directed(func, tvb, tree)
	if func == 10 then
		tree:add(f.io_device, tvb(12, 4))
		tree:add(f.transactions, tvb(16, 4))
		tree:add(f.requester, tvb(20, 8))
		local names, at = {}, list_at(tvb)
		for t = TRANSACTIONS_AT, at - TRANSACTION, TRANSACTION do
			names[#names + 1] = operations[tvb(t, 4):uint()] or "unknown operation"
			transaction(tvb, t, tree, names[#names])
		end
		if at < tvb:len() then
			list(tvb(at):tvb(), tree)
		end
		return table.concat(names, ", ")
	elseif func == 11 then
		tree:add(f.directed_status, tvb(12, 4))
		tree:add(f.done, tvb(16, 4))
		tree:add(f.bytes, tvb(20, 8))
		return directed_statuses[tvb(12, 4):uint()] or "failed"
	elseif func == 12 then
		tree:add(f.from, tvb(12, 8))
		tree:add(f.to, tvb(20, 8))
		tree:add(f.requester, tvb(28, 8))
		directed_end(tvb(36, 32), tree)
		return "queue pair " .. tvb(36, 4):uint()
	end
	tree:add(f.directed_status, tvb(12, 4))
	directed_end(tvb(16, 32), tree)
	return directed_statuses[tvb(12, 4):uint()] or "failed"
end

-- The data of the request types. Each takes exactly the data, which is not
-- empty, and returns false if it is not of that type's form.
local values = {
	[1] = function(d, tree)
		if d:len() ~= 6 then return false end
		tree:add(f.mac, d)
	end,
	[2] = function(d, tree)
		if d:len() ~= 4 then return false end
		tree:add(f.mtu, d)
	end,
	[3] = function(d, tree)
		if d:len() ~= 8 then return false end
		tree:add(f.up, d(0, 4))
		tree:add(f.speed, d(4, 4))
	end,
	[4] = function() return false end,
	[5] = function(d, tree)
		if d:len() ~= 4 then return false end
		for _, field in ipairs(f_offload) do
			tree:add(field, d)
		end
	end,
	[6] = function(d, tree)
		if d:len() < 8 then return false end
		local u, m = d(4, 2):uint(), d(6, 2):uint()
		if d:len() ~= 8 + 6 * (u + m) then return false end
		tree:add(f.promisc, d(0, 4))
		tree:add(f.allmulti, d(0, 4))
		tree:add(f.unicasts, d(4, 2))
		tree:add(f.multicasts, d(6, 2))
		for i = 0, u + m - 1 do
			tree:add(i < u and f.unicast or f.multicast, d(8 + 6 * i, 6))
		end
	end,
	[7] = function(d, tree)
		if d:len() ~= 512 then return false end
		for i = 0, 511 do
			local b = d(i, 1):uint()
			for bit = 0, 7 do
				if b % 2 == 1 then
					tree:add(f.vlan, d(i, 1), 8 * i + bit)
				end
				b = math.floor(b / 2)
			end
		end
	end,
	[10] = function() return false end,
	[11] = function(d, tree)
		if d:len() ~= 12 then return false end
		tree:add(f.channel, d(0, 4))
		tree:add(f.next, d(4, 8))
	end,
	[12] = function(d, tree)
		if d:len() ~= 32 then return false end
		tree:add(f.proof, d)
	end,
}

local function statistics(d, tree)
	if d:len() % 8 ~= 0 then return false end
	for i = 1, math.min(#f_stat, d:len() / 8) do
		tree:add(f_stat[i], d(8 * (i - 1), 8))
	end
end
values[8], values[9] = statistics, statistics

-- cfg adds a request, or a reply, whose data begins at offset at.
local function cfg(tvb, tree, at)
	local kind = tvb(HEADER, 4):uint()
	local what = requests[kind] or ("type " .. kind)
	tree:add(f.request, tvb(HEADER, 4))
	if at == 24 then
		tree:add(f.status, tvb(16, 4))
		what = what .. ": " .. (statuses[tvb(16, 4):uint()] or "failed")
	end
	tree:add(f.size, tvb(at - 4, 4))
	if at == 20 and path(tvb) then
		return what
	elseif tvb:len() ~= at + tvb(at - 4, 4):uint() then
		tree:add_proto_expert_info(malformed, "The data is shorter or longer than its size")
	elseif tvb:len() > at then
		local d = tvb(at)
		local show = values[kind]
		if not show then
			tree:add(f.data, d)
		elseif show(d, tree) == false then
			tree:add_tvb_expert_info(malformed, d, "No data of this type")
		end
	end
	return what
end

-- message adds one whole message and returns what to say of it in a line.
local function message(tvb, pinfo, tree, root)
	local func = tvb(0, 2):uint()
	local line = functions[func] or ("function " .. func)
	tree:add(f.func, tvb(0, 2))
	tree:add(f.version, tvb(2, 2))
	if not plausible(tvb, tvb:len()) then
		tree:add_proto_expert_info(malformed, "No message of this length")
	end
	local body = tvb:len() - HEADER
	if func == 6 then
		tree:add(f.seq, tvb(4, 8))
		line = line .. " " .. tostring(tvb(4, 8):uint64())
		if body > 4 then
			tree:add(f.size, tvb(HEADER, 4))
			frames(tvb(SEND_OVERHEAD):tvb(), pinfo, tree, root)
		end
		return line
	end
	tree:add(f.transaction, tvb(4, 8))
	if func == 1 then
		recv_pool(tvb, tree)
	elseif func == 2 and body >= 12 then
		pool_get(tvb, tree)
	elseif func == 3 then
		pool_update(tvb, tree)
	elseif func == 4 then
		flush(tvb, tree)
	elseif func == 7 then
		indicate(tvb, tree)
	elseif func == 8 and body >= 8 then
		line = line .. " (" .. cfg(tvb, tree, 20) .. ")"
	elseif func == 9 and body >= 12 then
		line = line .. " (" .. cfg(tvb, tree, 24) .. ")"
	elseif func >= 10 and func <= 13 and plausible(tvb, tvb:len()) then
		line = line .. " (" .. directed(func, tvb, tree) .. ")"
	end
	return line
end

local function say(pinfo, line)
	pinfo.cols.protocol = "splitnic"
	pinfo.cols.info:append(" " .. line)
end

-- A control message that is encrypted: nothing but its length can be recognised.
local function control_encrypted(tvb, pinfo, root, known)
	local right = tvb:len() >= HEADER + TAG and tvb:len() <= MAX_CONTROL + TAG
	if not known and not right then
		return false
	end
	local tree = root:add(splitnic, tvb())
	tree:add(f.encrypted, tvb())
	if not right then
		tree:add_proto_expert_info(malformed, "No message has this length")
	end
	tree:append_text(", encrypted message")
	say(pinfo, "encrypted message")
	return true
end

-- A SEND.
local function send(tvb, pinfo, root, kind, flow, known)
	local m = tvb
	if kind == SEND_LAST then
		local found = preceding(flow, ib_psn().value, pinfo.number, SEND_FIRST, SEND_MIDDLE)
		if not found then
			return false
		end
		local bytes = ByteArray.new()
		for _, part in ipairs(found) do
			bytes:append(part)
		end
		bytes:append(tvb:bytes())
		m = bytes:tvb("splitnic message")
	elseif kind ~= SEND_ONLY then
		remember(flow, ib_psn().value, pinfo.number, kind, tvb:bytes())
		return false -- it says nothing by itself
	end
	local data = m:len() >= HEADER and m(0, 2):uint() == 6 and plausible(m, m:len())
	if splitnic.prefs.encrypted and not data then
		return control_encrypted(m, pinfo, root, known)
	end
	if m:len() < HEADER or not (known or plausible(m, m:len())) then
		return false
	end
	local tree = root:add(splitnic, m())
	local line = message(m, pinfo, tree, root)
	tree:append_text(", " .. line)
	say(pinfo, line)
	return true
end

-- An RDMA write with immediate data, which comes with the last packet.
local function write(tvb, pinfo, root, kind, flow, known)
	local raw = ib_imm()
	if not splitnic.prefs.immediate or not raw then
		return false
	end
	local length
	if kind == WRITE_ONLY_IMM then
		length = ib_dmalen() and ib_dmalen().value
	else
		local found = preceding(flow, ib_psn().value, pinfo.number, WRITE_FIRST, WRITE_MIDDLE)
		length = found and found[1]
	end
	local imm = raw.range
	if not known and length ~= imm(2, 2):uint() then
		return false
	end
	if not known and kind == WRITE_ONLY_IMM and tvb:len() < MIN_FRAME then
		return false
	end
	local tree = root:add(splitnic, tvb())
	local line = string.format("pool %d, element %d, %d bytes", imm(0, 1):uint(), imm(1, 1):uint(), imm(2, 2):uint())
	tree:append_text(", " .. line)
	local t = tree:add(f.imm, imm)
	t:add(f.imm_pool, imm)
	t:add(f.imm_element, imm)
	t:add(f.imm_length, imm)
	if length and length ~= imm(2, 2):uint() then
		t:add_proto_expert_info(malformed, "The write has " .. length .. " bytes")
	end
	if kind == WRITE_ONLY_IMM then
		frames(tvb, pinfo, tree, root)
	end
	say(pinfo, line)
	return true
end

local function dissect(tvb, pinfo, root)
	local opcode = ib_opcode()
	if not opcode or opcode.value >= 0x40 or tvb:len() == 0 then -- neither RC nor UC
		return false
	end
	local qp = ib_qp().value
	local known = chosen(qp)
	if known == false then
		return false
	end
	local kind = opcode.value % 32
	local flow = string.format("%s %s %d", tostring(pinfo.src), tostring(pinfo.dst), qp)
	-- The dissector before this one may leave the padding of the packet.
	local pad = ib_pad() and ib_pad().value or 0
	local unpadded = tvb
	if pad > 0 and tvb:len() % 4 == 0 and tvb:len() > pad then
		unpadded = tvb(0, tvb:len() - pad):tvb()
	end
	if kind == SEND_FIRST or kind == SEND_MIDDLE or kind == SEND_LAST or kind == SEND_ONLY then
		return send(unpadded, pinfo, root, kind, flow, known)
	elseif kind == WRITE_FIRST or kind == WRITE_MIDDLE then
		remember(flow, ib_psn().value, pinfo.number, kind, ib_dmalen() and ib_dmalen().value or 0)
	elseif kind == WRITE_LAST_IMM or kind == WRITE_ONLY_IMM then
		return write(unpadded, pinfo, root, kind, flow, known)
	end
	return false
end

function splitnic.dissector(tvb, pinfo, root)
	return dissect(tvb, pinfo, root) and tvb:len() or 0
end

splitnic:register_heuristic("infiniband.payload", dissect)
