"""What the pages are wired from: the decode worker, the shelves of runs, links, theme and uploads."""
