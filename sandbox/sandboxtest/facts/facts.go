// Package facts holds what the suite's probe reports from inside a sandbox, as JSON.
package facts

// A Report describes the inside of a sandbox as a process there sees it.
type Report struct {
	UID, GID int
	Dir      string
	Env      map[string]string
	Status   map[string]string // of /proc/self/status: CapEff, CapBnd, NoNewPrivs, Seccomp, …
	NS       map[string]string // of /proc/self/ns: user, pid, ipc, uts, net, mnt, cgroup
	NetDev   []string          // names of network interfaces
	Mounts   []Mount
	NoFile   [2]uint64 // soft and hard limit of descriptors
	Host     string    // the host's name
}

// A Mount is one line of /proc/self/mountinfo.
type Mount struct {
	Target  string
	Options []string // of the mount
	FS      string   // type of the file system
}

// An Outcome tells how one attempt went.
type Outcome struct {
	OK    bool
	Errno string // such as "EROFS"; "" when the failure had none
	Text  string // what was read, or the error's text
}

// A File is one file that was looked at.
type File struct {
	Path    string
	Mode    uint32 // permission bits
	UID     int
	Content string
	Tmpfs   bool
	Names   []string // of a folder
	Err     string
}
