package exchange

// Operation is what a git client asks for, in metrics and traces.
type Operation string

// All operations. A clone is a fetch of a client that says that it has nothing. A negotiation is a
// fetch whose answer has no pack, because client and server still look for common commits.
const (
	Advertise   Operation = "advertise"
	LsRefs      Operation = "ls-refs"
	Clone       Operation = "clone"
	Fetch       Operation = "fetch"
	Negotiation Operation = "negotiation"
	ObjectInfo  Operation = "object-info"
	Push        Operation = "push"
	Archive     Operation = "archive"
)
