package sandbox

// Kinds of the images that Handler builds, the values of LabelKind.
const (
	KindToolbox = "toolbox"
	KindAddon   = "addon"
	KindHarness = "harness"
)

// ToolboxImage is the reference of the toolbox called name; "" is the default one.
func ToolboxImage(name string) string {
	if name == "" {
		name = "default"
	}
	return "localhost/handler/toolbox:" + name
}

// AddonImage is the reference of an addon's image.
func AddonImage(name string) string { return "localhost/handler/addon-" + name + ":latest" }

// HarnessImage is the reference of a harness's image.
func HarnessImage(name string) string { return "localhost/handler/harness-" + name + ":latest" }
