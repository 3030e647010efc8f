package clients

// FolderHeader is the header in which a client says in which folder it is.
const FolderHeader = "Junction-Folder"
