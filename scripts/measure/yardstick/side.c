#define _GNU_SOURCE
#include "side.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct side self;
static volatile sig_atomic_t finished;

void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "yardstick: %s: ", self.name ? self.name : "start");
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(1);
}

void give_up(int sig)
{
	static const char late[] = "yardstick: not done in time\n", gone[] = "yardstick: the target ended early\n";
	ssize_t n;

	if (sig == SIGCHLD) {
		if (finished)
			return;
		n = write(STDERR_FILENO, gone, sizeof(gone) - 1);
	} else {
		n = write(STDERR_FILENO, late, sizeof(late) - 1);
	}
	_exit(n < 0 ? 2 : 1);
}

size_t element(void)
{
	return ((size_t)opt.size + 63) / 64 * 64;
}

static void device_open(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!list)
		die("cannot list RDMA devices: %s", strerror(errno));
	for (int i = 0; list[i] && !self.ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			self.ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	if (!self.ctx)
		die("cannot open the RDMA device %s: is there one in ibv_devices?", name);
}

static int gid_find(void)
{
	static const uint8_t ipv4[12] = {[10] = 0xff, [11] = 0xff};
	struct ibv_gid_entry table[256];
	ssize_t n = ibv_query_gid_table(self.ctx, table, 256, 0);

	for (ssize_t i = 0; i < n; i++)
		if (table[i].port_num == PORT && table[i].gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    !memcmp(table[i].gid.raw, ipv4, sizeof(ipv4)))
			return table[i].gid_index;
	die("no RoCE v2 address of an IPv4 address: name a GID index with -x or -X");
}

/* send_depth has room for the target's credits too. */
static int send_depth(void)
{
	return opt.tx_depth > 16 ? opt.tx_depth : 16;
}

static void open_shared(int which)
{
	int depth = opt.qps * (send_depth() + opt.rx_depth);

	self.name = which ? "target" : "initiator";
	device_open(opt.device[which]);
	if (opt.gid_index[which] < 0)
		opt.gid_index[which] = gid_find();
	self.pd = ibv_alloc_pd(self.ctx);
	self.wake = ibv_create_comp_channel(self.ctx);
	if (!self.pd || !self.wake)
		die("cannot allocate a protection domain and a completion channel: %s", strerror(errno));
	self.cq = ibv_create_cq(self.ctx, depth, NULL, self.wake, 0);
	if (!self.cq)
		die("cannot create a completion queue of %d: %s", depth, strerror(errno));
}

static void channel_open(int i, int which)
{
	struct channel *c = &self.ch[i];
	size_t bytes = element() * (opt.lat ? 1 : which ? opt.rx_depth : opt.tx_depth);
	struct ibv_qp_init_attr init = {
		.send_cq = self.cq, .recv_cq = self.cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = send_depth(), .max_recv_wr = opt.rx_depth, .max_send_sge = 1,
			.max_recv_sge = 1, .max_inline_data = opt.max_inline},
	};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = PORT, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	/* Populated: a page that is first touched costs many messages. */
	c->buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (c->buffer == MAP_FAILED)
		die("cannot map %zu bytes: %s", bytes, strerror(errno));
	c->mr = ibv_reg_mr(self.pd, c->buffer, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!c->mr)
		die("cannot register %zu bytes: %s; is the limit of locked memory (ulimit -l) too small?", bytes, strerror(errno));
	c->qp = ibv_create_qp(self.pd, &init);
	if (!c->qp)
		die("cannot create a queue pair: %s", strerror(errno));
	if (ibv_modify_qp(c->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("cannot initialize a queue pair: %s", strerror(errno));
}

void post_receives(int i, int n)
{
	struct ibv_recv_wr *bad;

	while (n > 0) {
		int k = n < opt.list ? n : opt.list;
		struct ibv_recv_wr *first = &self.recv[opt.list - k];
		int err;

		for (struct ibv_recv_wr *w = first; w; w = w->next)
			w->wr_id = i;
		err = ibv_post_recv(self.ch[i].qp, first, &bad);
		if (err)
			die("cannot post a receive: %s", strerror(err));
		n -= k;
	}
}

static void tell(int sock, const void *p, size_t n)
{
	if (send(sock, p, n, MSG_NOSIGNAL) != (ssize_t)n)
		die("cannot reach the other side: %s", strerror(errno));
}

static void hear(int sock, void *p, size_t n)
{
	if (recv(sock, p, n, MSG_WAITALL) != (ssize_t)n)
		die("the other side ended early");
}

static void connect_side(int which, int sock)
{
	struct ibv_port_attr port;
	int gid = opt.gid_index[which];
	char ready = 1;

	if (ibv_query_port(self.ctx, PORT, &port))
		die("cannot query the port: %s", strerror(errno));
	for (int k = 0; k < opt.list; k++)
		self.recv[k].next = k + 1 < opt.list ? &self.recv[k + 1] : NULL;
	for (int i = 0; i < opt.qps; i++) {
		struct channel *c = &self.ch[i];
		struct address mine = {.qpn = c->qp->qp_num, .psn = (uint32_t)lrand48() & 0xffffff,
				       .rkey = c->mr->rkey, .buffer = (uintptr_t)c->buffer};
		struct ibv_qp_attr rtr = {
			.qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
			.ah_attr = {.is_global = 1, .port_num = PORT, .grh = {.sgid_index = gid, .hop_limit = 64}},
		};
		/* No retry of a receiver that is not ready: it is an error here. */
		struct ibv_qp_attr rts = {
			.qp_state = IBV_QPS_RTS, .sq_psn = mine.psn, .timeout = opt.timeout, .retry_cnt = 6, .max_rd_atomic = 1,
		};

		if (ibv_query_gid(self.ctx, PORT, gid, &mine.gid))
			die("no address with GID index %d: %s", gid, strerror(errno));
		tell(sock, &mine, sizeof(mine));
		hear(sock, &c->peer, sizeof(c->peer));
		rtr.dest_qp_num = c->peer.qpn;
		rtr.rq_psn = c->peer.psn;
		rtr.ah_attr.grh.dgid = c->peer.gid;
		if (ibv_modify_qp(c->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
			die("cannot reach the other device: %s", strerror(errno));
		if (ibv_modify_qp(c->qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
			die("cannot bring a queue pair into service: %s", strerror(errno));
		post_receives(i, opt.rx_depth);
	}
	tell(sock, &ready, 1);
	hear(sock, &ready, 1);
}

int completions(bool block)
{
	for (;;) {
		for (int last = 0; last < 2; last++) {
			int n = ibv_poll_cq(self.cq, POLL, self.wc);

			if (n < 0)
				die("cannot poll the completion queue");
			for (int i = 0; i < n; i++)
				if (self.wc[i].status != IBV_WC_SUCCESS)
					die("a request failed: %s", ibv_wc_status_str(self.wc[i].status));
			if (n > 0 || !block)
				return n;
			/* One more look after arming: nothing else tells of what came before. */
			if (!last && ibv_req_notify_cq(self.cq, 0))
				die("cannot arm the completion queue");
		}
		struct ibv_cq *cq;
		void *unused;

		if (ibv_get_cq_event(self.wake, &cq, &unused))
			die("cannot wait for a completion: %s", strerror(errno));
		self.events++;
	}
}

void side_open(int which, int sock)
{
	srand48(getpid() ^ time(NULL));
	open_shared(which);
	for (int i = 0; i < opt.qps; i++)
		channel_open(i, which);
	connect_side(which, sock);
}

/* A queue pair that goes takes acknowledgements with it, so neither side goes
 * before the other one has all it waits for. */
void side_close(int sock)
{
	char done = 1;

	finished = 1;
	tell(sock, &done, 1);
	hear(sock, &done, 1);
	for (int i = 0; i < opt.qps; i++) {
		ibv_destroy_qp(self.ch[i].qp);
		ibv_dereg_mr(self.ch[i].mr);
	}
	ibv_ack_cq_events(self.cq, self.events);
	ibv_destroy_cq(self.cq);
	ibv_destroy_comp_channel(self.wake);
	ibv_dealloc_pd(self.pd);
	ibv_close_device(self.ctx);
}

