#define _GNU_SOURCE
#include "adapter.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <linux/magic.h>

/*
 * Soft-RoCE has no device/driver in sysfs, and sysfs cannot be changed. This process
 * gets a mount namespace with another /sys/class/infiniband, whose entries lead to the
 * true ones.
 */

#define CLASS "/sys/class/infiniband"
#define DEVICES 16

/* Writes the path of a name in a directory. */
static void join(char *path, const char *dir, const char *name)
{
	if (snprintf(path, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX)
		fail("%s/%s is too long", dir, name);
}

/* Makes a link called name in dir. */
static void link_to(const char *target, const char *dir, const char *name)
{
	char path[PATH_MAX];

	join(path, dir, name);
	if (symlink(target, path))
		fail("%s: %m", path);
}

static void make(const char *path)
{
	if (mkdir(path, 0755))
		fail("%s: %m", path);
}

/* Makes the directory of a device, whose true one is origin. */
static void dress(const char *name, const char *origin)
{
	char dir[PATH_MAX], path[PATH_MAX];
	DIR *d = opendir(origin);

	if (!d)
		fail("%s: %m", origin);
	join(dir, CLASS, name);
	make(dir);
	for (struct dirent *e; (e = readdir(d));) {
		if (*e->d_name == '.' || !strcmp(e->d_name, "device"))
			continue;
		join(path, origin, e->d_name);
		link_to(path, dir, e->d_name);
	}
	closedir(d);
	join(path, dir, "device");
	make(path);
	join(dir, "/sys/bus/pci/drivers", facts.driver);
	link_to(dir, path, "driver");
}

void sysfs_dress(char **argv, char **envp)
{
	char name[DEVICES][NAME_MAX + 1], path[PATH_MAX], *origin[DEVICES], *self = realpath("/proc/self/exe", NULL);
	struct statfs fs;
	int n = 0;
	DIR *d;

	if (!self)
		fail("/proc/self/exe: %m");
	/* Without an RDMA device, or in the namespace. */
	if (statfs(CLASS, &fs) || fs.f_type == TMPFS_MAGIC) {
		free(self);
		return;
	}
	d = opendir(CLASS);
	if (!d)
		fail(CLASS ": %m");
	for (struct dirent *e; n < DEVICES && (e = readdir(d));) {
		if (*e->d_name == '.')
			continue;
		join(path, CLASS, e->d_name);
		origin[n] = realpath(path, NULL);
		if (!origin[n])
			fail("%s: %m", path);
		snprintf(name[n++], sizeof(name[0]), "%s", e->d_name);
	}
	closedir(d);
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) ||
	    mount("adapter", CLASS, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755"))
		fail("a mount namespace: %m");
	for (int i = 0; i < n; i++) {
		dress(name[i], origin[i]);
		free(origin[i]);
	}
	/* A program looks for its own file by a path, which has to be one of the namespace. */
	execve(self, argv, envp);
	fail("%s: %m", self);
}
