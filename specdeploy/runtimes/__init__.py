"""Back-ends that describe builds, repositories and launches; none of them acts."""
