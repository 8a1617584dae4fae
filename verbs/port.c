#include "shim.h"

#include <string.h>

int snv_query_port(struct ibv_context *ctx, uint8_t port, struct snv_port_attr *out)
{
	struct ibv_port_attr a;
	int err = ibv_query_port(ctx, port, &a);

	if (err)
		return err;
	*out = (struct snv_port_attr){
		.state = a.state,
		.max_mtu = a.max_mtu,
		.active_mtu = a.active_mtu,
		.gid_tbl_len = a.gid_tbl_len,
		.pkey_tbl_len = a.pkey_tbl_len,
		.max_msg_sz = a.max_msg_sz,
		.lid = a.lid,
		.sm_lid = a.sm_lid,
		.active_width = a.active_width,
		.active_speed = a.active_speed,
		.phys_state = a.phys_state,
		.link_layer = a.link_layer,
		.grh_required = (a.flags & IBV_QPF_GRH_REQUIRED) != 0,
	};
	return 0;
}

int snv_query_moderation(struct ibv_context *ctx, uint16_t *count, uint16_t *period)
{
	struct ibv_device_attr_ex a;
	int err = ibv_query_device_ex(ctx, NULL, &a);

	if (err)
		return err;
	*count = a.cq_mod_caps.max_cq_count;
	*period = a.cq_mod_caps.max_cq_period;
	return 0;
}

int snv_query_gids(struct ibv_context *ctx, struct ibv_gid_entry *out, int max, int *n)
{
	ssize_t r = ibv_query_gid_table(ctx, out, max, 0);

	if (r < 0)
		return (int)-r;
	*n = (int)r;
	return 0;
}
