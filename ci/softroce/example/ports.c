// ports: prints the state and the MTU of the first port of each RDMA device, and
// fails if there is none. The smallest program that libibverbs has work for.
#include <infiniband/verbs.h>
#include <stdio.h>

static int print_port(struct ibv_device *device)
{
	struct ibv_port_attr port;
	struct ibv_context *context = ibv_open_device(device);

	if (!context) {
		perror(ibv_get_device_name(device));
		return 1;
	}
	int err = ibv_query_port(context, 1, &port);

	if (err)
		fprintf(stderr, "%s: ibv_query_port: error %d\n", ibv_get_device_name(device), err);
	else
		printf("%s: %s, MTU %d\n", ibv_get_device_name(device), ibv_port_state_str(port.state),
		       128 << port.active_mtu);
	ibv_close_device(context);
	return err;
}

int main(void)
{
	int n = 0, bad = 0;
	struct ibv_device **devices = ibv_get_device_list(&n);

	for (int i = 0; i < n; i++)
		bad |= print_port(devices[i]);
	if (devices)
		ibv_free_device_list(devices);
	if (n == 0)
		fprintf(stderr, "no RDMA device\n");
	return bad || n == 0;
}
