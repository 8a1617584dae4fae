/*
 * wimm: how fast RDMA_WRITE_WITH_IMM is with as little software around it as
 * there can be. It does the work of the messaging layer without the checks:
 * every message goes into an element of its own and consumes a posted receive
 * without memory; the target posts receives again in batches and gives the
 * initiator credits back, so that no receiver is ever not ready.
 *
 * Two processes, initiator and target, each with a device of its own; addresses
 * go over a socket pair. The columns are those of perftest.
 */
#define _GNU_SOURCE
#include "side.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct options opt = {
	.gid_index = {-1, -1}, .cpu = {-1, -1}, .size = 65535, .iters = 1000, .tx_depth = 64, .rx_depth = 256,
	.list = 16, .qps = 1, .max_inline = -1, .timeout = 18, .seconds = 120,
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* chain is a batch of writes with immediate data. */
struct chain {
	struct ibv_send_wr wr[MAX_LIST];
	struct ibv_sge sge[MAX_LIST];
};

static struct chain chain;

/* post_writes posts the next n messages of channel i; the last one is signalled
 * if wanted, and stands for all. */
static void post_writes(int i, int n, bool signal)
{
	struct channel *c = &self.ch[i];
	uint32_t elements = opt.lat ? 1 : opt.rx_depth, slots = opt.lat ? 1 : opt.tx_depth;
	struct ibv_send_wr *bad;
	int err;

	for (int k = 0; k < n; k++, c->next++) {
		struct ibv_send_wr *w = &chain.wr[k];

		chain.sge[k] = (struct ibv_sge){
			.addr = (uintptr_t)c->buffer + c->next % slots * element(), .length = opt.size, .lkey = c->mr->lkey};
		w->wr_id = (uint64_t)n << 32 | (uint32_t)i;
		w->next = k + 1 < n ? w + 1 : NULL;
		w->sg_list = &chain.sge[k];
		w->num_sge = 1;
		w->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		w->send_flags = opt.size <= opt.max_inline ? IBV_SEND_INLINE : 0;
		w->imm_data = htonl(c->next % elements);
		w->wr.rdma.remote_addr = c->peer.buffer + c->next % elements * element();
		w->wr.rdma.rkey = c->peer.rkey;
	}
	if (signal)
		chain.wr[n - 1].send_flags |= IBV_SEND_SIGNALED;
	err = ibv_post_send(c->qp, chain.wr, &bad);
	if (err)
		die("cannot post a write: %s", strerror(err));
}

/* bw_send sends iters messages on every channel and returns when all of them
 * have been consumed and every credit is back. */
static void bw_send(long iters)
{
	int busy = opt.qps; /* channels that are not done */

	for (int i = 0; i < opt.qps; i++)
		self.ch[i].left = iters;
	while (busy > 0) {
		for (int i = 0; i < opt.qps; i++) {
			struct channel *c = &self.ch[i];

			while (c->left > 0) {
				int n = c->left < opt.list ? (int)c->left : opt.list;

				if (c->credits < n || c->outstanding + n > opt.tx_depth)
					break;
				post_writes(i, n, true);
				c->credits -= n;
				c->outstanding += n;
				c->left -= n;
			}
		}
		int n = completions(opt.events);

		for (int k = 0; k < n; k++) {
			struct ibv_wc *wc = &self.wc[k];
			struct channel *c = &self.ch[(uint32_t)wc->wr_id];

			if (wc->opcode == IBV_WC_RECV) {
				post_receives((uint32_t)wc->wr_id, 1);
				c->credits += ntohl(wc->imm_data);
			} else {
				c->outstanding -= wc->wr_id >> 32;
			}
			if (c->left == 0 && c->outstanding == 0 && c->credits == opt.rx_depth) {
				c->left = -1;
				busy--;
			}
		}
	}
}

/* give posts the receives of channel i again that were consumed, and gives the
 * credits for them if there are enough of them, or no more are to come. */
static void give(int i, bool all)
{
	struct channel *c = &self.ch[i];
	struct ibv_send_wr *bad, wr = {.wr_id = i, .opcode = IBV_WR_SEND_WITH_IMM, .send_flags = IBV_SEND_SIGNALED};
	int err;

	post_receives(i, c->consumed);
	c->owed += c->consumed;
	c->consumed = 0;
	if (c->owed < opt.rx_depth / 4 && !all)
		return;
	wr.imm_data = htonl(c->owed);
	c->owed = 0;
	err = ibv_post_send(c->qp, &wr, &bad);
	if (err)
		die("cannot give credits: %s", strerror(err));
	c->outstanding++;
}

/* bw_receive takes on every channel what bw_send sends in two phases. */
static void bw_receive(long warm_up, long iters)
{
	int busy = opt.qps;

	for (int i = 0; i < opt.qps; i++)
		self.ch[i].left = warm_up + iters;
	while (busy > 0) {
		int n = completions(opt.events);

		for (int k = 0; k < n; k++) {
			struct ibv_wc *wc = &self.wc[k];
			int i = (uint32_t)wc->wr_id;
			struct channel *c = &self.ch[i];

			if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
				bool last;

				if (wc->byte_len != (uint32_t)opt.size)
					die("a message of %u bytes came, not %d", wc->byte_len, opt.size);
				c->left--;
				c->consumed++;
				last = c->left == 0 || c->left == iters;
				if (c->consumed == opt.list || last)
					give(i, last);
			} else {
				c->outstanding--;
			}
			if (c->left == 0 && c->outstanding == 0)
				busy--;
		}
	}
}

static void bw(int which)
{
	long warm_up = opt.iters / 10 + opt.list, total = (long)opt.iters * opt.qps;
	double begin, seconds;

	for (int i = 0; i < opt.qps; i++)
		self.ch[i].credits = opt.rx_depth;
	if (which) {
		bw_receive(warm_up, opt.iters);
		return;
	}
	bw_send(warm_up);
	begin = now();
	bw_send(opt.iters);
	seconds = now() - begin;
	printf(" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n");
	printf(" %-10d %-14ld %-18s %-20.2f %.6f\n", opt.size, total, "0.00", total * (double)opt.size / seconds / (1 << 20),
	       total / seconds / 1e6);
}

/* lat_receive waits for one message. */
static void lat_receive(void)
{
	struct channel *c = &self.ch[0];
	int received = 0;

	while (!received) {
		int n = completions(opt.events);

		for (int k = 0; k < n; k++) {
			if (self.wc[k].opcode != IBV_WC_RECV_RDMA_WITH_IMM)
				continue;
			if (self.wc[k].byte_len != (uint32_t)opt.size)
				die("a message of %u bytes came, not %d", self.wc[k].byte_len, opt.size);
			received++;
		}
	}
	c->consumed++;
}

/* lat_send sends one message, and then does what the answer need not wait for. */
static void lat_send(void)
{
	struct channel *c = &self.ch[0];
	/* A completion stands for half a queue. */
	post_writes(0, 1, (c->next + 1) % (opt.tx_depth / 2) == 0);
	if (c->consumed >= opt.list) {
		post_receives(0, c->consumed);
		c->consumed = 0;
	}
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void lat(int which)
{
	int warm_up = opt.iters / 10 + 1, n = opt.iters;
	double *half, before = 0, sum = 0, squares = 0;

	if (which) {
		for (int i = 0; i < warm_up + n; i++) {
			lat_receive();
			lat_send();
		}
		return;
	}
	half = calloc(n, sizeof(*half));
	if (!half)
		die("no memory for %d figures", n);
	for (int i = 0; i < warm_up + n; i++) {
		double t;

		lat_send();
		lat_receive();
		t = now();
		if (i >= warm_up) {
			half[i - warm_up] = (t - before) * 1e6 / 2;
			sum += half[i - warm_up];
			squares += half[i - warm_up] * half[i - warm_up];
		}
		before = t;
	}
	qsort(half, n, sizeof(*half), compare);
	printf(" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
	       "99%% percentile[usec]   99.9%% percentile[usec]\n");
	printf(" %-7d %-13d %-14.2f %-12.2f %-18.2f %-14.2f %-15.2f %-22.2f %.2f\n", opt.size, n, half[0], half[n - 1], half[n / 2],
	       sum / n, sqrt(fabs(squares / n - sum / n * (sum / n))), half[(int)(n * 0.99)], half[(int)(n * 0.999)]);
	free(half);
}

/* bind_to has this process run on one processor only. */
static void bind_to(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("cannot run on processor %d: %s", cpu, strerror(errno));
}

static void run(int which, int sock)
{
	if (opt.cpu[which] >= 0)
		bind_to(opt.cpu[which]);
	side_open(which, sock);
	if (opt.lat)
		lat(which);
	else
		bw(which);
	side_close(sock);
}

__attribute__((noreturn)) static void usage(void)
{
	fprintf(stderr,
		"usage: yardstick bw|lat -d DEVICE [-D PEER-DEVICE] [options]\n"
		"  -d DEVICE   RDMA device of the initiator\n"
		"  -D DEVICE   RDMA device of the target (default: the same)\n"
		"  -x INDEX    GID index of the initiator's device (default: its RoCE v2 IPv4 address)\n"
		"  -X INDEX    GID index of the target's device\n"
		"  -c CPU      processor of the initiator (default: any)\n"
		"  -C CPU      processor of the target\n"
		"  -s BYTES    size of a message (65535)\n"
		"  -n N        messages on each queue pair, or round trips (1000)\n"
		"  -q N        queue pairs (1; bw only)\n"
		"  -l N        writes in one post, of which one is signalled (16)\n"
		"  -t N        depth of the send queue (64)\n"
		"  -r N        depth of the receive queue, elements of the target (256)\n"
		"  -I BYTES    messages up to this size inline (bw: 0, lat: 220, as perftest)\n"
		"  -u N        timeout of a queue pair, 4.096 us * 2^N (18)\n"
		"  -e          sleep until there is a completion, on both sides\n"
		"  -T SECONDS  give up after this (120)\n");
	exit(2);
}

static int number(const char *s, int min, int max)
{
	char *end;
	long n = strtol(s, &end, 10);

	if (*s == 0 || *end != 0 || n < min || n > max) {
		fprintf(stderr, "yardstick: '%s' is not a number from %d to %d\n", s, min, max);
		exit(2);
	}
	return (int)n;
}

static void options(int argc, char **argv)
{
	int o;

	if (argc < 2 || (strcmp(argv[1], "bw") && strcmp(argv[1], "lat")))
		usage();
	opt.lat = !strcmp(argv[1], "lat");
	while ((o = getopt(argc - 1, argv + 1, "d:D:x:X:c:C:s:n:q:l:t:r:I:u:eT:")) != -1) {
		switch (o) {
		case 'd': opt.device[0] = optarg; break;
		case 'D': opt.device[1] = optarg; break;
		case 'x': opt.gid_index[0] = number(optarg, 0, 255); break;
		case 'X': opt.gid_index[1] = number(optarg, 0, 255); break;
		case 'c': opt.cpu[0] = number(optarg, 0, CPU_SETSIZE - 1); break;
		case 'C': opt.cpu[1] = number(optarg, 0, CPU_SETSIZE - 1); break;
		case 's': opt.size = number(optarg, 1, 1 << 23); break;
		case 'n': opt.iters = number(optarg, 1, 1 << 30); break;
		case 'q': opt.qps = number(optarg, 1, MAX_QPS); break;
		case 'l': opt.list = number(optarg, 1, MAX_LIST); break;
		case 't': opt.tx_depth = number(optarg, 2, 16384); break;
		case 'r': opt.rx_depth = number(optarg, 4, 16384); break;
		case 'I': opt.max_inline = number(optarg, 0, 1024); break;
		case 'u': opt.timeout = number(optarg, 0, 31); break;
		case 'e': opt.events = true; break;
		case 'T': opt.seconds = number(optarg, 1, 86400); break;
		default: usage();
		}
	}
	if (optind != argc - 1 || !opt.device[0])
		usage();
	if (!opt.device[1])
		opt.device[1] = opt.device[0];
	if (opt.max_inline < 0)
		opt.max_inline = opt.lat ? 220 : 0;
	if (opt.lat)
		opt.qps = 1;
	if (opt.list > opt.tx_depth || 4 * opt.list > opt.rx_depth) {
		fprintf(stderr, "yardstick: %d writes in one post need a send queue of as many and a receive queue of four times as many\n",
			opt.list);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	int sock[2], status;
	pid_t target;

	options(argc, argv);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sock))
		die("cannot make a socket pair: %s", strerror(errno));
	signal(SIGALRM, give_up);
	signal(SIGCHLD, give_up);
	target = fork();
	if (target < 0)
		die("cannot fork: %s", strerror(errno));
	/* Neither side outlives the other. */
	if (target == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(sock[0]);
		run(1, sock[1]);
		return 0;
	}
	close(sock[1]);
	alarm(opt.seconds);
	run(0, sock[0]);
	if (waitpid(target, &status, 0) != target || status != 0)
		die("the target failed");
	return 0;
}
