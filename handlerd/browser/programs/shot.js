// A picture of the whole page, cut to a size, from a height on; none where the page ends before that.
async (page) => {
  const arg = ARGUMENT;
  const size = await page.evaluate(() => ({
    width: Math.max(document.documentElement.scrollWidth, 1),
    height: Math.max(document.documentElement.scrollHeight, 1),
  }), null, { world: 'utility' });
  const clip = { x: 0, y: arg.top, width: Math.min(size.width, arg.width), height: Math.min(size.height - arg.top, arg.height) };
  if (clip.height <= 0)
    return { ...size, picture: '' };
  const picture = await page.screenshot({ type: 'png', fullPage: true, clip, scale: 'css', timeout: arg.time });
  return { ...size, picture: picture.toString('base64') };
}
