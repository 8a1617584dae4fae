/*
 * reader DEVICE GID: a queue pair that reads from its peer's memory, which
 * splitnic itself cannot do. GID is that of the device, in hexadecimal.
 *
 * The program prints "QPN PSN", reads a line
 *
 *	OPERATION QPN PSN GID ADDRESS RKEY
 *
 * about the peer (OPERATION is read, add or swap, numbers are decimal), carries
 * out the operation on 8 bytes, and prints the status of the completion and how
 * many of its own 8 bytes have changed. It exits with 1 if anything else fails.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

#define PSN 4711

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void parse_gid(const char *hex, union ibv_gid *gid)
{
	for (int i = 0; i < 16; i++)
		check(sscanf(hex + 2 * i, "%2hhx", &gid->raw[i]) == 1, "GID");
}

int main(int argc, char **argv)
{
	static uint64_t mem[8];
	struct ibv_context *ctx = NULL;
	union ibv_gid own, gid;
	int n, index;

	check(argc == 3, "usage: reader DEVICE GID");
	struct ibv_device **list = ibv_get_device_list(&n);
	for (int i = 0; list && i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), argv[1]))
			ctx = ibv_open_device(list[i]);
	check(ctx != NULL, argv[1]);
	parse_gid(argv[2], &own);
	for (index = 0; ; index++) {
		check(ibv_query_gid(ctx, 1, index, &gid) == 0, "GID");
		struct ibv_gid_entry e;
		if (!memcmp(&gid, &own, 16) && !ibv_query_gid_ex(ctx, 1, index, &e, 0) && e.gid_type == IBV_GID_TYPE_ROCE_V2)
			break;
	}
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 4, NULL, NULL, 0);
	check(pd && cq, "protection domain, completion queue");
	memset(mem, 0x5a, sizeof mem);
	struct ibv_mr *mr = ibv_reg_mr(pd, mem, sizeof mem, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	check(mr && qp, "memory region, queue pair");
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	check(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	printf("%u %u\n", qp->qp_num, PSN);
	fflush(stdout);

	char op[8], hex[33];
	uint32_t qpn, psn, rkey;
	uint64_t addr;
	check(scanf("%7s %" SCNu32 " %" SCNu32 " %32s %" SCNu64 " %" SCNu32, op, &qpn, &psn, hex, &addr, &rkey) == 6, "the peer");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qpn, .rq_psn = psn,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = index, .hop_limit = 64 } } };
	parse_gid(hex, &a.ah_attr.grh.dgid);
	check(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 6, .rnr_retry = 7, .sq_psn = PSN, .max_rd_atomic = 1 };
	check(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");

	struct ibv_sge sge = { .addr = (uintptr_t)mem, .length = 8, .lkey = mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED };
	if (!strcmp(op, "read")) {
		wr.opcode = IBV_WR_RDMA_READ;
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = rkey;
	} else {
		wr.opcode = strcmp(op, "add") ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = wr.wr.atomic.swap = 1;
	}
	check(!ibv_post_send(qp, &wr, &bad), "post");
	struct ibv_wc wc;
	do
		n = ibv_poll_cq(cq, 1, &wc);
	while (n == 0);
	check(n == 1, "poll");
	int changed = 0;
	for (int i = 0; i < 8; i++)
		changed += ((unsigned char *)mem)[i] != 0x5a;
	printf("%d %d\n", wc.status, changed);
	ibv_destroy_qp(qp);
	ibv_dereg_mr(mr);
	ibv_destroy_cq(cq);
	ibv_dealloc_pd(pd);
	ibv_close_device(ctx);
	ibv_free_device_list(list);
	return 0;
}
