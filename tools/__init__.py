"""Programs that build, test and check tasklib; none of them is shipped in the wheel."""
