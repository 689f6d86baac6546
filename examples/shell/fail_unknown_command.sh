# This program is not installed anywhere.
frobnicate --all
