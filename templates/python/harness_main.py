# /usr/lib/brood/harness: the module is compiled already, and the work folder is not on this path.
import brood_harness
brood_harness.run()
