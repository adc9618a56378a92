// Artifacts and pictures: thumbnails that open large, chips that download.
import { useState } from "preact/hooks";
import type { Artifact } from "../lib/types.ts";
import { artifactURL } from "../model/pictures.ts";
import { bytes } from "../model/words.ts";
import { Dialog, Icon } from "./basics.tsx";

// isPicture says whether a media type is shown as a picture.
export function isPicture(type: string): boolean {
  return /^image\/(png|jpeg|gif|webp|avif)$/.test(type);
}

// Shot is a thumbnail; one that is none says so and can be had as a file.
export function Shot({ src, alt, type, bytes: size }: { src: string; alt: string; type: string; bytes: number }) {
  const [open, setOpen] = useState(false);
  const [broken, setBroken] = useState(false);
  if (broken) {
    return (
      <span class="broken">
        This is called {type} and is no picture that a browser shows{size ? ` (${bytes(size)})` : ""}.{" "}
        {src.startsWith("/api/") ? <a href={src} download>Download it</a> : null}
      </span>
    );
  }
  return (
    <>
      <button class="shot" onClick={() => setOpen(true)} aria-label={`Open large: ${alt}`}>
        <img src={src} alt={alt} loading="lazy" decoding="async" onError={() => setBroken(true)} />
      </button>
      {open ? (
        <Dialog title={alt} close={() => setOpen(false)} wide>
          <img class="large" src={src} alt={alt} />
          <p class="row"><a class="button" href={src} download={src.startsWith("data:") ? "picture." + type.slice(6) : true}>Download</a></p>
        </Dialog>
      ) : null}
    </>
  );
}

// ArtifactChip is a file that downloads, or opens where it can be shown.
export function ArtifactChip({ artifact: a }: { artifact: Artifact }) {
  return (
    <a class="chip" href={artifactURL(a.id)} download={a.name} title={`${a.type}, ${bytes(a.bytes)}`}>
      <Icon name="file" />
      <span>{a.name}</span>
      <small>{bytes(a.bytes)}</small>
    </a>
  );
}
