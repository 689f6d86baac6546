/* brood-worker: jobs run in sandboxes of vmpool. */
#include "worker/worker_main.h"

int main(int argc, char **argv)
{
    return worker_main(argc, argv, NULL);
}
