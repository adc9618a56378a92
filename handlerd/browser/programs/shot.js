// A picture of the whole page, cut to a size.
async (page) => {
  const arg = ARGUMENT;
  const size = await page.evaluate(() => ({
    width: Math.max(document.documentElement.scrollWidth, 1),
    height: Math.max(document.documentElement.scrollHeight, 1),
  }), null, { world: 'utility' });
  const clip = { x: 0, y: 0, width: Math.min(size.width, arg.width), height: Math.min(size.height, arg.height) };
  const picture = await page.screenshot({ type: 'png', fullPage: true, clip, scale: 'css', timeout: arg.time });
  return { ...size, picture: picture.toString('base64') };
}
