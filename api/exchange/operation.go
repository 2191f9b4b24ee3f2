package exchange

// Operation is what a git client asks for, in metrics, traces and the audit log.
type Operation string

// All operations. A clone is a fetch of a client that says that it has nothing. A negotiation is a
// fetch whose answer has no pack, because client and server still look for common commits.
const (
	Capabilities Operation = "capabilities" // of protocol version 2, which tell nothing of the repository
	LsRefs       Operation = "ls-refs"      // also the advertisement of versions 0 and 1, and that of a push
	Clone        Operation = "clone"
	Fetch        Operation = "fetch"
	Negotiation  Operation = "negotiation"
	ObjectInfo   Operation = "object-info"
	Push         Operation = "push"
	Archive      Operation = "archive" // also by calls of the API, whose name in the audit log is their own
)

// Action names the operation in the audit log, where a negotiation is a fetch; "" where the name of
// the call says it.
func (o Operation) Action() string {
	switch o {
	case Capabilities:
		return "gitCapabilities"
	case LsRefs:
		return "gitLsRefs"
	case Clone:
		return "gitClone"
	case Fetch, Negotiation:
		return "gitFetch"
	case ObjectInfo:
		return "gitObjectInfo"
	case Push:
		return "gitPush"
	case Archive:
	}
	return ""
}
