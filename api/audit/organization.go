package audit

import (
	"time"

	"packhorse/api/auth"
)

// Organization writes a line about a change of an organization, as [auth.Options].Changed is told
// of it. The change has been made elsewhere: in the folder of organizations, or in the database.
func (w *Writer) Organization(change auth.Change) {
	w.Write(&Record{
		Time: time.Now(), Via: Background, Organization: change.Org, Action: string(change.Kind), KeyID: change.KeyID,
	})
}
