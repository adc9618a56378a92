// Package podman runs sandboxes (contract A) with rootless podman, over the bindings of podman's API.
//
// A Driver has a podman service of its own (A.10): a child process with its own configuration, storage, home and
// runtime folder, so that nothing of the person's podman is read, written or listed, and none of it is left when the
// Driver is closed. It starts at the first use and again after it died. Options.Socket names a service of the
// person's instead.
//
// The level of isolation is one, strict (A.3); build (spec.go) is the only place that says what it is made of, and
// seccomp.go the only one that says which system calls it has. Where a promise rests on what podman, the runtime or
// the kernel did with the specification, Start looks at the made sandbox before its command runs (identity.go).
//
// Everything that imports this package is built with the tags remote, containers_image_openpgp,
// exclude_graphdriver_btrfs and exclude_graphdriver_devicemapper.
package podman
