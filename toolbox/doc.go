// Package toolbox builds what sandboxes are made of (A.8): the toolbox images, and the images of addons and harnesses
// over them, which hold only their own folder. It knows recipes; a sandbox.Images builds and keeps the images, and a
// sandbox.Driver runs what has to be tried in them.
//
// Building is rootless, asks nothing but a Debian mirror (or an image registry) and an npm registry, and says what it
// does as Events.
package toolbox
