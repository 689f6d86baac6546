#include "guest/identity.h"

#include <fcntl.h>
#include <linux/random.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "common/base/cleanup.h"

#define ENTROPY_BYTES_MIN 32u
#define HOSTNAME_MAX 63u
#define NS_PER_S 1000000000

static int open_file(const char *path, struct err *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    return fd < 0 ? err_sys(err, "open %s", path) : fd;
}

/* Whole content of a small file that stays open. One write, then the cut: never empty in between.
 */
static int put_file(int fd, const char *text, int len)
{
    return pwrite(fd, text, (size_t)len, 0) == len && ftruncate(fd, len) == 0 ? 0 : -1;
}

int identity_init(struct identity *id, struct err *err)
{
    *id = (struct identity){ -1, -1, -1, -1 };
    id->random_fd = open("/dev/random", O_RDWR | O_CLOEXEC);
    if (id->random_fd < 0) {
        return err_sys(err, "open /dev/random");
    }
    id->hostname_fd = open_file("/etc/hostname", err);
    id->hosts_fd = id->hostname_fd < 0 ? -1 : open_file("/etc/hosts", err);
    id->machine_id_fd = id->hosts_fd < 0 ? -1 : open_file("/etc/machine-id", err);
    if (id->machine_id_fd < 0) {
        return -ERR_SYS;
    }
    /* Written once now, so that the overlay's copies exist before the snapshot. */
    static const char hosts[] = "127.0.0.1\tlocalhost\n::1\tlocalhost\n";
    if (put_file(id->hostname_fd, "brood\n", 6) < 0 ||
        put_file(id->hosts_fd, hosts, (int)sizeof hosts - 1) < 0 ||
        put_file(id->machine_id_fd, "uninitialized\n", 14) < 0 || sethostname("brood", 5) < 0) {
        return err_sys(err, "names in /etc");
    }
    return 0;
}

static int set_names(const struct identity *id, const guest_Identity *msg, struct err *err)
{
    char text[256];
    size_t n = strlen(msg->hostname);
    if (n == 0 || n > HOSTNAME_MAX ||
        strspn(msg->hostname, "abcdefghijklmnopqrstuvwxyz0123456789-") != n) {
        return err_set(err, ERR_INVALID, "hostname");
    }
    if (msg->machine_id.size != 16) {
        return err_set(err, ERR_INVALID, "machine_id: not 16 bytes");
    }
    if (sethostname(msg->hostname, n) < 0) {
        return err_sys(err, "sethostname");
    }
    int len = snprintf(text, sizeof text, "%s\n", msg->hostname);
    int rc = put_file(id->hostname_fd, text, len);
    len = snprintf(text, sizeof text, "127.0.0.1\tlocalhost\n127.0.1.1\t%s\n::1\tlocalhost\n",
                   msg->hostname);
    rc = rc ? rc : put_file(id->hosts_fd, text, len);
    for (int i = 0; i < 16; i++) {
        (void)snprintf(text + (ptrdiff_t)2 * i, 4, "%02x\n", msg->machine_id.bytes[i]);
    }
    rc = rc ? rc : put_file(id->machine_id_fd, text, 33);
    return rc ? err_sys(err, "names in /etc") : 0;
}

int identity_set(const struct identity *id, const guest_Identity *msg, struct err *err)
{
    if (msg->entropy.size < ENTROPY_BYTES_MIN || msg->realtime_ns <= 0) {
        return err_set(err, ERR_INVALID, "entropy below %u bytes, or no time", ENTROPY_BYTES_MIN);
    }
    struct timespec now = { msg->realtime_ns / NS_PER_S, msg->realtime_ns % NS_PER_S };
    if (clock_settime(CLOCK_REALTIME, &now) < 0) {
        return err_sys(err, "clock_settime");
    }
    struct {
        struct rand_pool_info info;
        unsigned char bytes[sizeof msg->entropy.bytes];
    } pool = { .info = { .entropy_count = (int)msg->entropy.size * 8,
                         .buf_size = (int)msg->entropy.size } };
    memcpy(pool.bytes, msg->entropy.bytes, msg->entropy.size);
    if (ioctl(id->random_fd, RNDADDENTROPY, &pool) < 0 || ioctl(id->random_fd, RNDRESEEDCRNG) < 0) {
        return err_sys(err, "reseed");
    }
    explicit_bzero(&pool, sizeof pool);
    return set_names(id, msg, err);
}
