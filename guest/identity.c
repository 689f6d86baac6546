#include "guest/identity.h"

#include <fcntl.h>
#include <limits.h>
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

static int open_file(struct identity_file *f, const char *path, struct err *err)
{
    f->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    return f->fd < 0 ? err_sys(err, "open %s", path) : 0;
}

/* Whole content of a small file that stays open. One write, then the cut where one is due: never
 * empty in between. */
static int put_file(struct identity_file *f, const char *text, int len)
{
    if (pwrite(f->fd, text, (size_t)len, 0) != len || (len < f->len && ftruncate(f->fd, len) < 0)) {
        return -1;
    }
    f->len = len;
    return 0;
}

int identity_init(struct identity *id, struct err *err)
{
    *id = (struct identity){ -1, { -1, INT_MAX }, { -1, INT_MAX }, { -1, INT_MAX } };
    id->random_fd = open("/dev/random", O_RDWR | O_CLOEXEC);
    if (id->random_fd < 0) {
        return err_sys(err, "open /dev/random");
    }
    int rc = open_file(&id->hostname, "/etc/hostname", err);
    rc = rc ? rc : open_file(&id->hosts, "/etc/hosts", err);
    rc = rc ? rc : open_file(&id->machine_id, "/etc/machine-id", err);
    if (rc < 0) {
        return rc;
    }
    /* Written once now, so that the overlay's copies exist before the snapshot. */
    static const char hosts[] = "127.0.0.1\tlocalhost\n::1\tlocalhost\n";
    if (put_file(&id->hostname, "brood\n", 6) < 0 ||
        put_file(&id->hosts, hosts, (int)sizeof hosts - 1) < 0 ||
        put_file(&id->machine_id, "uninitialized\n", 14) < 0 || sethostname("brood", 5) < 0) {
        return err_sys(err, "names in /etc");
    }
    return 0;
}

static int set_names(struct identity *id, const guest_Identity *msg, struct err *err)
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
    int rc = put_file(&id->hostname, text, len);
    len = snprintf(text, sizeof text, "127.0.0.1\tlocalhost\n127.0.1.1\t%s\n::1\tlocalhost\n",
                   msg->hostname);
    rc = rc ? rc : put_file(&id->hosts, text, len);
    for (int i = 0; i < 16; i++) {
        (void)snprintf(text + (ptrdiff_t)2 * i, 4, "%02x\n", msg->machine_id.bytes[i]);
    }
    rc = rc ? rc : put_file(&id->machine_id, text, 33);
    return rc ? err_sys(err, "names in /etc") : 0;
}

int identity_set(struct identity *id, const guest_Identity *msg, struct err *err)
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
