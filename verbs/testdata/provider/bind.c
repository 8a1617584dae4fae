/*
 * Binds memory windows with a provider that rejects a part of the list, and writes the
 * window's key before that or not. Prints the result, the number of the first rejected
 * request, and whether the window has its old or its new key.
 */
#include "../../shim.c"

#include <stdio.h>

static int reject;    /* number of the request to reject; -1: none */
static int eager;     /* write the key of the window also if the bind is rejected */
static int forgetful; /* do not say which request was rejected */

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *w, struct ibv_send_wr **bad)
{
	(void)qp;
	for (int i = 0; w; w = w->next, i++) {
		if (w->opcode == IBV_WR_BIND_MW && (eager || i != reject))
			w->bind_mw.mw->rkey = w->bind_mw.rkey;
		if (i != reject)
			continue;
		if (!forgetful)
			*bad = w;
		return EINVAL;
	}
	return 0;
}

int main(void)
{
	struct ibv_context ctx = {.ops = {.post_send = post_send}};
	struct ibv_qp qp = {.context = &ctx};

	for (reject = -1; reject < 2; reject++) {
		for (eager = 0; eager < 2; eager++) {
			for (forgetful = 0; forgetful < 2; forgetful++) {
				for (int send = reject == 1; send < 2; send++) {
					struct ibv_mw mw = {.rkey = 0x1234ff};
					struct snv_bind b = {.mw = &mw};
					int err = send ? snv_post_bind_send((snv_qp)&qp, b, 7, 0) :
							 snv_post_bind((snv_qp)&qp, b);

					printf("send %d, rejected %d, eager %d, forgetful %d: %s, key %#x\n", send, reject, eager,
					       forgetful, err ? "error" : "posted", mw.rkey);
				}
			}
		}
	}
	return 0;
}
