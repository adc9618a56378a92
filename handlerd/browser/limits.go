package browser

import "time"

// Bounds of a worker, whatever its launcher and its session say (F.8); those of every box are mcpbox's.
const (
	WorkerMemory    = 2 << 30   // bytes of the whole tree, tmpfs counted in
	WorkerStorage   = 512 << 20 // bytes of WorkerFiles: downloads, PDFs, uploads
	WorkerTmp       = 512 << 20 // bytes of /tmp: the browser's profile and its shared memory
	WorkerHome      = 64 << 20
	WorkerShm       = 64 << 20
	WorkerProcesses = 1024 // processes and threads

	WorkerLaunchTime  = 30 * time.Second // from the start of the sandbox to playwright-mcp's answer
	WorkerCallTime    = 3 * time.Minute  // of one call of upstream
	WorkerRunTime     = 2 * time.Minute  // of one program of the toolbox
	WorkerErrors      = 64 << 10         // bytes kept of what a program says on its standard error
	WorkerConnections = 512              // of all workers' proxies together
)

// The size of pages in pixels, with a window and without.
const (
	PageWidth  = 1280
	PageHeight = 720

	frameHeight = 87 // of Chromium's tabs and address above a page
)

// WorkerFiles is a worker's folder for files that come and go: a tmpfs of its own, so that a download that never ends
// fills it and nothing else.
const WorkerFiles = "/run/handler-files"
